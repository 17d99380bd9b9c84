"""The graphs of compiled code, with an operator of ours beside each attention.

`torch.compile` traces Python to a graph, and gives it to a backend, which makes code of it. In that
code no function is left to replace. So while a watch is open, what is compiled is traced once more
(`recompilation.py`), its graph is changed here, and the backend compiles the changed one:

    query, key, value = …                        query, key, value = …
    a = sdpa(query, key, value)       ──▶        a = sdpa(query, key, value)
    b = sdpa(a, …)                               t0 = record([query, key, value], a, None, site=0)
    return b                                     b = sdpa(a, …)
                                                 t1 = record([a, …], b, t0, site=1)
                                                 return b, t1

`glasshead::record_attention` takes the tensors of an attention and returns a token. To a compiler
it is opaque and has no effect, so the graph returns its last token, and each takes the one before:
no pass drops one, and they run in order.

There are three times.

- Compiling: `WatchedGraph` adds the operators. All that does not change from run to run is kept in
  a `Site` (`attention_sites.py`): the function, its other arguments, and the modules that call it,
  by the places at which the code finds them. What cannot be recorded is noted as `Passed`.
- Running: `observing` opens a `WatchedRun`, which finds the modules by the variables of the frame
  that called the code, and takes the tokens off its outputs.
- Recording: the operator hands its tensors to the run of its thread, which lets the watchers
  observe the call as if its modules were on the stack.

What always holds:

- The changed graph computes what the other one does, with the same numbers: our operator asks for
  no layout, reads no memory twice and has no gradient.
- Tensors are captured at once, as the code writes to their memory again.
- A kernel of attention that ran and belongs to no site is reported at the end of the run; so is a
  module that no place tells.
- Modules that are alike share a graph. Which of them runs is looked up in each run.
"""

import operator
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from glasshead.attention import Attention
from glasshead.private_names import private
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import (
    COMPILED,
    COMPILED_SOFTMAX,
    IN_COMPILED_CODE,
    MEANT,
    unreadable,
)
from glasshead.watching.interception.attention_sites import (
    READING,
    SDPA,
    STREAMING,
    Passed,
    Site,
    Slot,
    Stack,
    library_of,
)
from glasshead.watching.interception.session import THREADS, Session
from glasshead.watching.module_calls import ModuleCall, calls_on_stack, within_traced
from glasshead.watching.reasons import attends

# Neither reads a tensor's memory twice nor asks for another layout than that which is there.
_TAGS = [
    getattr(torch.Tag, name)
    for name in ("flexible_layout", "cudagraph_unsafe")
    if hasattr(torch.Tag, name)
]
torch.library.define(
    "glasshead::record_attention",
    "(Tensor[] inputs, SymInt[] sizes, float[] numbers, Tensor output, Tensor? before, int site)"
    " -> Tensor",
    tags=_TAGS,
)


# `torch.library.custom_op` would be equivalent, but imports the compiler on the first call.
@torch.library.impl("glasshead::record_attention", "CompositeExplicitAutograd")
def _(
    inputs: list[Tensor],
    sizes: list[int],
    numbers: list[float],
    output: Tensor,
    before: Tensor | None,
    site: int,
) -> Tensor:
    del before
    run = THREADS.session.graph
    if run is not None:
        try:
            run.record(site, output, inputs=inputs, sizes=sizes, numbers=numbers)
        except MEANT:
            raise
        except Exception as error:  # noqa: BLE001 - the model runs on
            THREADS.session.record_unobserved(unreadable(error), within=True)
    return _token(output)


def _token(output: Tensor) -> Tensor:
    """Return a new tensor that has no gradient, on the device of an output."""
    return torch.zeros(1, dtype=torch.uint8, device=output.device)


@torch.library.register_fake("glasshead::record_attention")
def _(*given: Any) -> Tensor:
    # The output is the fourth argument.
    return _token(given[3])


# The compiler's own code, between what it generated and what that calls.
_COMPILER = "_dynamo/eval_frame.py"
_HIGHER_ORDER = "torch._ops.HigherOrderOperator"

_RECORDED = (SDPA, "multi_head_attention_forward", STREAMING)
# Another operator with such a name attends, of whatever library, and cannot be seen.
_ATTENDING = re.compile(r"(?!\w*(backward|mask))\w*(attention|attn|transformer_encoder)")
_SOFTMAX = re.compile(r"_?(safe_)?softmax")
_IN_PLACE = re.compile(r"\w*[a-z0-9]_")


@dataclass
class WatchedGraph:
    """A graph of the compiler with an operator of ours beside each attention.

    Args:
        module: The graph, which is changed.
    """

    module: GraphModule
    sites: list[Site] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)

    def __post_init__(self) -> None:
        kind = private(_HIGHER_ORDER)
        self._higher_order = kind is None or any(
            isinstance(node.target, kind) for node in self.module.graph.nodes
        )
        self._tokens = len(self._watch(self.module))

    def _watch(self, module: GraphModule) -> list[Node]:
        """Add an operator beside each attention of a graph; return the tokens that it returns."""
        tokens: list[Node] = []
        for node in [*module.graph.nodes]:
            name = _function(node) or ""
            body = _checkpointed(node, name)
            if name in _RECORDED:
                tokens[-1:] = [self._add(node, name, tokens[-1] if tokens else None)]
            elif body is not None:
                tokens += self._watch_body(node, body)
            elif why := _unobserved_reason(node, name):
                self.passed.append(Passed(_stack(node), why=why))
            elif _SOFTMAX.fullmatch(name):
                self.passed.append(Passed(_stack(node), axes=_axes(node)))
        if tokens:
            output = _output(module)
            output.args = ((*output.args[0], *tokens),)
            module.recompile()
        return tokens

    def _watch_body(self, node: Node, body: GraphModule) -> list[Node]:
        """Add operators to the graph of a checkpoint, and return its tokens."""
        before = len(_output(body).args[0])
        inner = self._watch(body)
        values = tuple(token.meta.get("example_value") for token in inner)
        node.meta["example_value"] = (*node.meta.get("example_value", ()), *values)
        with node.graph.inserting_after(node):
            tokens = [
                node.graph.call_function(operator.getitem, (node, before + place))
                for place in range(len(inner))
            ]
        for token, value in zip(tokens, values, strict=True):
            token.meta.update(node.meta, example_value=value)
        return tokens

    def observing(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return compiled code that reports to the watchers of its thread.

        Args:
            compiled: The code of this graph.
        """

        def run(*inputs: Any) -> Any:
            session, frame = THREADS.session, sys._getframe(1)  # noqa: SLF001
            current = WatchedRun(self, session, frame)
            with session.in_graph(current, higher_order=self._higher_order):
                outputs = compiled(*inputs)
            return outputs[: len(outputs) - self._tokens]

        return run

    def _add(self, node: Node, name: str, before: Node | None) -> Node:
        """Add an operator after a call, and return the node of its token."""
        slots: dict[str, list[Node]] = {"inputs": [], "sizes": [], "numbers": []}

        def slot(argument: Any) -> Any:
            if not isinstance(argument, Node):
                return argument
            kind = _kind(argument)
            slots[kind].append(argument)
            return Slot(kind, len(slots[kind]) - 1)

        given = map_aggregate((node.args, dict(node.kwargs)), slot)
        self.sites.append(Site(_stack(node), name, given, _crosses(node, name)))
        graph, output, last = node.graph, node, node
        value = node.meta.get("example_value")
        if isinstance(value, tuple | list):
            value = value[0]
            with graph.inserting_after(node):
                last = output = graph.call_function(operator.getitem, (node, 0))
            output.meta.update(node.meta, example_value=value)
        with graph.inserting_after(last):
            token = graph.call_function(
                torch.ops.glasshead.record_attention.default,
                (*slots.values(), output, before, len(self.sites) - 1),
            )
        token.meta.update(node.meta)
        if isinstance(value, Tensor):
            token.meta["example_value"] = _token(value)
        return token


class WatchedRun:
    """A run of a watched graph.

    Args:
        graph: The graph.
        session: The session of this thread.
        frame: A frame below that of the code which the graph belongs to.

    Attributes:
        kernels: The logsumexps of kernels whose attention is not recorded yet, by the address of
            their outputs.
        tells_all: Whether the graph has no softmax but those of the attentions that it records.
        device: Where the last attention ran; None: none has been recorded.
    """

    def __init__(self, graph: WatchedGraph, session: Session, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename.endswith(_COMPILER):
            frame = frame.f_back
        self._graph, self._session, self._frame = graph, session, frame
        self._values: dict[str, Any] = {}
        self._known: dict[str, ModuleCall] = {}
        # The calls around this run, which stay as they are while it lasts.
        self._around: list[ModuleCall] | None = None
        self._without_kernel = 0
        self.kernels: dict[int | None, Tensor] = {}
        self.tells_all = not graph.passed
        self.device: torch.device | None = None
        for one in graph.passed:
            with within_traced(self._calls(one.stack)):
                self._pass(one)

    def _pass(self, one: Passed) -> None:
        """Report what is not recorded to the watchers."""
        module = next((call.module for call in self._calls(one.stack)), None)
        if one.why is not None:
            self._session.record_unobserved(one.why)
        elif library_of(module) in READING and attends(type(module).__name__):
            # Code that is not compiled is seen by its own functions.
            self._session.record_unobserved(COMPILED_SOFTMAX)
        else:
            self._session.record_softmax(one.axes, IN_COMPILED_CODE)

    def record(self, index: int, output: Tensor, **values: Sequence[Any]) -> None:
        """Let the watchers observe an attention that has run.

        Args:
            index: The index of its site.
            output: Its output.
            values: What fills the slots of its arguments.
        """
        site, session = self._graph.sites[index], self._session
        self.device = output.device
        known = self.kernels.pop(_address(output), None)
        self._without_kernel += known is None
        calls = self._calls(site.stack)
        if len(calls) < len(site.stack):
            # Nothing tells which module this is.
            session.record_unobserved(COMPILED, within=True)
            return

        def capture() -> CapturedCall:
            others = (one.module for one in calls if not isinstance(one.module, Attention))
            # The code may write to this memory again.
            logsumexps = () if known is None else (known.clone(),)
            return site.capture(values, session.context(output, logsumexps), next(others, None))

        if self._around is None:
            self._around = calls_on_stack()
        with within_traced(calls, self._around):
            call = site.call(values)
            if call is None or not session.observe_alike(call):
                session.observe(None, capture, output, at_once=True)

    def record_kernel(self, output: Tensor, logsumexp: Tensor) -> None:
        """Record that a kernel of attention has run."""
        self.kernels[_address(output)] = logsumexp

    def finish(self) -> None:
        """Report kernels that belong to no recorded attention."""
        if len(self.kernels) > self._without_kernel:
            self._session.record_unobserved(COMPILED, within=True)

    def _calls(self, stack: Stack) -> list[ModuleCall]:
        """Return the calls of the modules on a stack, innermost first."""
        calls = []
        for key, place in reversed(stack):
            call = self._known.get(key)
            if call is None and isinstance(module := self._found(place), nn.Module):
                call = self._known[key] = ModuleCall(module)
            if call is not None:
                calls.append(call)
        return calls

    def _found(self, place: str) -> Any:
        """Return what is at a place, for the modules that this run belongs to.

        Modules that are alike share compiled code, which finds each by its own variables.
        """
        root, *steps = _parsed(place)
        if root is None or self._frame is None:
            return None
        # Modules are found in order, so that most of the way to one is known from another.
        known = next((n for n in range(len(steps), 0, -1) if steps[n - 1][0] in self._values), 0)
        if known:
            value = self._values[steps[known - 1][0]]
        else:
            path, space, name = root
            if path not in self._values:
                frame = self._frame
                variables = frame.f_locals if space == "L" else frame.f_globals
                self._values[path] = variables.get(name)
            value = self._values[path]
        for path, *step in steps[known:]:
            value = self._values[path] = _step_into(value, *step)
        return value


@lru_cache(2**12)
def _parsed(place: str) -> tuple[Any, ...]:
    """Divide a place into its root and its steps, each after the path that it ends; None: no root.

    Each run looks its modules up again, as two that are alike run the same code.
    """
    root = _ROOT.match(place)
    if root is None:
        return (None,)
    steps = ((place[: one.end()], *one.groups()) for one in _STEP.finditer(place, root.end()))
    return ((root[0], *root.groups()), *steps)


def _step_into(value: Any, attribute: str, quote: str, item: str) -> Any:
    """Return an attribute or an item of a value; None if it has none."""
    try:
        return getattr(value, attribute) if attribute else value[item if quote else int(item)]
    except Exception:  # noqa: BLE001 - a property of the model may raise anything
        return None


# Where a module was found by code that was compiled, such as L['self'].layers.0.attention.
_ROOT = re.compile(r"([LG])\['(\w+)'\]")
_STEP = re.compile(r"\.(\w+)|\[(['\"]?)([^\]'\"]+)\2\]")


def _stack(node: Node) -> Stack:
    """Return the modules that call a node, outermost first."""
    return tuple((key, place) for key, (place, _) in node.meta.get("nn_module_stack", {}).items())


def _function(node: Node) -> str | None:
    """Return the name of the function or operator that a node calls; None if it calls none."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return None
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        library, _, name = schema.name.partition("::")
        return schema.name if library == "glasshead" else name
    return getattr(node.target, "__name__", "")


def _unobserved_reason(node: Node, name: str) -> str | None:
    """Return why the attention of a node cannot be seen; None if it has none."""
    kind = private(_HIGHER_ORDER)
    if kind is not None and isinstance(node.target, kind):
        for x in (x for part in _parts(node) for x in part.graph.nodes):
            inner = _function(x) or ""
            if inner in _RECORDED or _SOFTMAX.fullmatch(inner) or _unobserved_reason(x, inner):
                return COMPILED
    return COMPILED if _ATTENDING.match(name) and name not in _RECORDED else None


def _parts(node: Node) -> list[GraphModule]:
    """Return the graphs that a higher-order operator is given."""
    owner = node.graph.owning_module
    parts = [
        getattr(owner, str(one.target), None)
        for one in node.all_input_nodes
        if one.op == "get_attr"
    ]
    return [part for part in parts if isinstance(part, GraphModule)]


def _checkpointed(node: Node, name: str) -> GraphModule | None:
    """Return the graph of a checkpoint, which runs once forward; None for another node."""
    parts = _parts(node) if name == "tag_activation_checkpoint" else []
    return parts[0] if parts and isinstance(_output(parts[0]).args[0], tuple) else None


def _output(module: GraphModule) -> Any:
    """Return the node of a graph's outputs."""
    return next(node for node in reversed(module.graph.nodes) if node.op == "output")


def _axes(node: Node) -> int:
    return getattr(node.meta.get("example_value"), "ndim", 2)


def _kind(node: Node) -> str:
    """Return which kind of slot a node fills."""
    value = node.meta.get("example_value")
    if isinstance(value, torch.SymInt | int):
        return "sizes"
    return "numbers" if isinstance(value, torch.SymFloat | float) else "inputs"


def _crosses(node: Node, name: str) -> bool:
    """Return whether queries and keys come from different inputs of the module that attends."""
    query, key = (
        node.args[place] if place < len(node.args) else node.kwargs[argument]
        for place, argument in enumerate(("query", "key"))
    )
    if query is key or name == "multi_head_attention_forward":
        return query is not key
    return _sources(query, node).isdisjoint(_sources(key, node))


def _sources(value: Any, node: Node) -> set[Node]:
    """Return the inputs of the attending module that a value is computed from.

    Parameters, which queries and keys may share, are none.
    """
    stack = reversed(node.meta.get("nn_module_stack", {}).items())
    scope = next((key for key, (_, kind) in stack if not issubclass(kind, Attention)), None)
    sources, open_, known = set(), [value], set()
    while open_:
        one = open_.pop()
        if one in known or not isinstance(one, Node):
            continue
        known.add(one)
        # A static cache is written to in place.
        open_ += [x for user in one.users if _writes(user, one) for x in user.all_input_nodes]
        within = scope is None or scope in one.meta.get("nn_module_stack", {})
        if one.op != "placeholder" and within:
            open_ += one.all_input_nodes
        elif _kind(one) == "inputs" and "_parameters_" not in one.name:
            sources.add(one)
    return sources


def _writes(node: Node, value: Node) -> bool:
    """Return whether a node writes to a value in place."""
    name = _function(node) or ""
    return node.args[:1] == (value,) and (name == "setitem" or bool(_IN_PLACE.fullmatch(name)))


def _address(output: Tensor) -> int | None:
    """Return the address of a tensor's numbers; None if it has none."""
    return output.data_ptr() if type(output) in (Tensor, nn.Parameter) else None
