"""The streaming engine: compiled blocks of queries on every core, in O(T) memory.

A call passes these files in order:

- `engine` refuses what the kernels cannot compute, and lowers a problem to tensors of four axes.
  `plain_calls` takes calls whose queries see a range of keys, without Python between the heads.
- `operator` is the operator that PyTorch compiles and differentiates.
- `operands` has the tensors, the request and the results of a pass, and checks them.
- `passes` runs a forward or backward pass: a program, its arrays, the sums of its stripes.
- `programs` divides the work, and holds the kernel calls of a pass. `lowering` makes them.
  `matrix_tiles` asks the system for AMX.
- `threads` lends PyTorch's threads. `machine_code` loads the kernels, and `build` compiles them.

In machine code, the files of `kernels`:

- `arguments` and `layouts` state what a kernel is called with, `streamed` what it computes,
  `processor` for which processors, `options` and `compiling` how it is compiled.
- `sharing` shares the heads among threads. `packing` lays vectors out for products.
- `forward` and `backward` pass over blocks. `parts` is the forward pass on matrix tiles, and next
  to a kernel that returned the logsumexps. `vectors` has its loops over rows.
- `products` multiplies on registers, `tiles` on matrix tiles.
- `weigh` is bias, mask and softmax, `exponential` its function, `sums` the reductions of weights.

`paged`, of both folders, reduces the queries of many requests against a paged cache.
"""

from glasshead.engines.streaming.engine import STREAMING, Streaming

__all__ = ["STREAMING", "Streaming"]
