"""Compiles the kernels to object files, by Numba, for this processor or another."""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from glasshead.engines.streaming.kernels.arguments import ENTRIES
from glasshead.engines.streaming.kernels.backward import backward_blocks
from glasshead.engines.streaming.kernels.forward import forward_blocks
from glasshead.engines.streaming.kernels.layouts import layout_of, parts_of
from glasshead.engines.streaming.kernels.options import kernel
from glasshead.engines.streaming.kernels.packing import (
    copy_rows,
    pack,
    pair_rows,
    pair_up,
    widen,
)
from glasshead.engines.streaming.kernels.paged import paged_units
from glasshead.engines.streaming.kernels.processor import Processor, at_hand
from glasshead.engines.streaming.kernels.sharing import share_heads

_FUNCTIONS = {
    "widen": widen,
    "copy_rows": copy_rows,
    "pack": pack,
    "pair_up": pair_up,
    "pair_rows": pair_rows,
    "forward_blocks": forward_blocks,
    "backward_blocks": backward_blocks,
    "share_heads": share_heads,
    "paged_units": paged_units,
}
# Those that each thread calls with nothing but its arguments.
_IN_THREADS = ("share_heads", "paged_units")


def symbol_of(entry: str) -> str:
    """Return the name of a kernel in its object file."""
    return f"glasshead_{entry}"


def compiled(entry: str, real: np.dtype, processor: Processor) -> bytes:
    """Compile one kernel for one dtype, and return its object file.

    It holds a function `int32 f(void *unused, void *unused, int64 address)`, Numba's own calling
    convention, which takes the arguments as `Packer` packs them and returns 0; and of those that
    threads share `void f_in_thread(void *address)`, as OpenMP calls it.
    """
    if processor != at_hand():
        raise ValueError("the kernels of another processor are compiled in a process for it.")
    with global_compiler_lock:
        # The context knows one generator of code at a time, and never runs modules of ours.
        context = cpu_target.target_context
        usual = context._internal_codegen  # noqa: SLF001 - Numba has no other name for it
        context._internal_codegen = generator = _Generator(processor)  # noqa: SLF001
        try:
            flat = _flat(entry, real)
            flat.compile((types.int64,))
            (result,) = flat.overloads.values()
            module = result.library._final_module  # noqa: SLF001
            for function in module.functions:
                if function.name == result.fndesc.llvm_func_name:
                    function.name = symbol_of(entry)
                elif not function.is_declaration:
                    function.linkage = "internal"
            if entry in _IN_THREADS:
                module.link_in(_in_thread(entry, module))
            return generator.emit(module)
        finally:
            context._internal_codegen = usual  # noqa: SLF001


def _in_thread(entry: str, module: Any) -> Any:
    """Return a module with the function that calls a kernel with nothing but its arguments."""
    made = ir.Module(entry)
    made.triple, made.data_layout = module.triple, module.data_layout
    pointer, word = ir.IntType(8).as_pointer(), ir.IntType(64)
    kind = ir.FunctionType(ir.IntType(32), [pointer, pointer, word])
    called = ir.Function(made, kind, symbol_of(entry))
    outer = ir.FunctionType(ir.VoidType(), [pointer])
    function = ir.Function(made, outer, f"{symbol_of(entry)}_in_thread")
    builder = ir.IRBuilder(function.append_basic_block())
    unused = builder.bitcast(builder.alloca(ir.ArrayType(word, 4)), pointer)
    builder.call(called, [unused, unused, builder.ptrtoint(function.args[0], word)])
    builder.ret_void()
    return binding.parse_assembly(str(made))


def _flat(entry: str, real: np.dtype) -> Any:
    """Wrap a kernel in a function of the address of its packed arguments."""
    function = _FUNCTIONS[entry]
    whole = types.Tuple([_type(kind, real) for kind in ENTRIES[entry]])

    @intrinsic
    def unpacked(typing_context: Any, address: Any) -> Any:  # noqa: ARG001 - Numba's protocol
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            (address,) = arguments
            words = builder.inttoptr(address, ir.IntType(64).as_pointer())
            return _Unpacking(context, builder, words).value(whole)

        return whole(types.int64), code

    @kernel
    def flat(address):
        function(*unpacked(address))

    return flat


def _type(kind: Any, real: np.dtype) -> types.Type:
    """Return Numba's type of an argument."""
    parts = parts_of(kind)
    if parts is not None:
        return types.NamedTuple([_type(part, real) for part in parts], kind)
    layout = layout_of(kind)
    if layout is None:
        return types.float64 if kind is float else types.int64
    dtype = {"bool": "boolean", "real": real.name}.get(layout.dtype, layout.dtype)
    return types.Array(getattr(types, dtype), layout.axes, "C")


class _Unpacking:
    """LLVM code that reads arguments from a block of words, one after the other."""

    def __init__(self, context: Any, builder: ir.IRBuilder, words: Any) -> None:
        self.context, self.builder, self.words = context, builder, words
        self.place = 0

    def value(self, kind: Any) -> Any:
        """Read a value of one of Numba's types."""
        if isinstance(kind, types.BaseTuple):
            values = [self.value(part) for part in kind.types]
            return self.context.make_tuple(self.builder, kind, values)
        if isinstance(kind, types.Array):
            return self._array(kind)
        word = self._word()
        if kind == types.float64:
            return self.builder.bitcast(word, ir.DoubleType())
        return word

    def _word(self) -> Any:
        place = self.builder.gep(self.words, [ir.IntType(64)(self.place)])
        self.place += 1
        return self.builder.load(place)

    def _array(self, kind: types.Array) -> Any:
        """Read an array that owns nothing."""
        context, builder = self.context, self.builder
        data = context.get_data_type(kind.dtype)
        itemsize = context.get_abi_sizeof(data)
        pointer = builder.inttoptr(self._word(), data.as_pointer())
        shape = [self._word() for _ in range(kind.ndim)]
        strides = [ir.IntType(64)(itemsize)]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = context.make_array(kind)(context, builder)
        populate_array(
            array, data=pointer, shape=shape, strides=strides, itemsize=itemsize, meminfo=None
        )
        return array._getvalue()  # noqa: SLF001


class _Library(codegen.AOTCodeLibrary):
    """Code that is linked and optimized, and not run."""

    def get_pointer_to_function(self, name: str) -> int:
        del name
        self._ensure_finalized()
        return 0


class _Generator(codegen.AOTCPUCodegen):
    """Numba's generator of code, for a processor of ours."""

    _library_class = _Library

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        super().__init__("glasshead")

    def _customize_tm_options(self, options: dict[str, Any]) -> None:
        options |= _options(self._processor)

    def _init(self, llvm_module: Any) -> None:
        super()._init(llvm_module)
        if self._processor.triple:
            # The machine at hand may be of another architecture.
            binding.initialize_all_targets()
            binding.initialize_all_asmprinters()
            target = binding.Target.from_triple(self._processor.triple)
            self._tm = target.create_target_machine(opt=3, **_options(self._processor))
            self._data_layout = str(self._tm.target_data)

    def _create_empty_module(self, name: str) -> ir.Module:
        module = super()._create_empty_module(name)
        if self._data_layout and self._processor.triple:
            module.triple = self._processor.triple
        return module

    def set_env(self, env_name: str, env: Any) -> None:
        """Set nothing: the environment is for Python's objects."""

    def emit(self, module: Any) -> bytes:
        """Return the object file of an optimized module."""
        return self._tm.emit_object(module)


def _options(processor: Processor) -> dict[str, Any]:
    # Addresses of 64 bits, as the code is loaded far from the C library.
    return {
        "cpu": processor.cpu,
        "features": processor.features,
        "reloc": "static" if processor.triple.startswith("x86") else "default",
        "codemodel": "jitdefault",
        "jit": True,
    }
