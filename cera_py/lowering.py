"""Turns a program into GPU dispatches: the one place where neighbouring operations become one kernel.

    Linear q, k, v, (HeadNorm q, k,) Rope q, k, Append  ->  linear | rope (norms heads, rotates, appends)
    Linear gate, up, Gate                               ->  linear (activates, encodes)
    Linear, Add                                         ->  linear (adds to the residual stream in place)
    TakeOutputs, Norm                                   ->  norm (of the wanted tokens, encodes)
and for steps of one token
    Embed, Norm, Linear  and  Linear, Add, Norm, Linear ->  embed | linear  and  linear | linear: the first one encodes
                                                            x * weight and sums squares, the second applies the factor

A linear layer over quantised weights reads its input in 16-bit fixed point (kernels/fixed16.py), one over floats in
float32; whoever makes a value encodes it as its readers want it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cera_py.gpu import Dispatch, Gpu, Grid
from cera_py.gpu_weights import GpuWeights, Matrix, Piece
from cera_py.kernels import add, attention, embed, fixed16, linear, norm, rope
from cera_py.kernels.kernel import Shader
from cera_py.kernels.linear import DeferredNorm, LinearShape
from cera_py.operations import (
    Add,
    Append,
    Attend,
    Embed,
    Gate,
    HeadNorm,
    Linear,
    Norm,
    Operation,
    Program,
    Rope,
    RopeTable,
    TakeOutputs,
    Value,
    inputs_of,
)

# Words of the `step` buffer, the state of the step on the GPU
# 0: n_tokens, 1: the first token whose logits are wanted, 2: n_outputs, 3: steps done
N_TOKENS, N_OUTPUTS = 0, 2
TOKENS_AT = 16  # then per token: its id, its position

SPLIT = 512  # positions that one workgroup of decode attention reads


@dataclass(frozen=True)
class StepSize:
    """What the grids of a step depend on. last_position: of the step's last token."""

    n_tokens: int
    n_outputs: int
    last_position: int


Work = list[tuple[Dispatch, Grid]]
Recorded = Callable[[StepSize], Work]  # the dispatches of one lowered operation, for a step of this size


@dataclass(frozen=True)
class Cache:
    """Keys and values of every layer, f16 [n_kv_heads, capacity, head_dim] each."""

    k: Sequence[Any]
    v: Sequence[Any]
    capacity: int


class Lowering:
    """The dispatches of steps of up to max_tokens tokens; linear layers take `tile` of them at once.

    Call `work(size)` for the dispatches of a step. `step` is the state's buffer, `logits` [max_outputs, vocab].
    """

    def __init__(
        self,
        program: Program,
        weights: GpuWeights,
        cache: Cache,
        step: Any,
        *,
        tile: int,
        max_tokens: int,
        max_outputs: int,
    ):
        self.gpu: Gpu = weights.gpu
        self.program = program
        self.weights = weights
        self.cache = cache
        self.step = step
        self.tile = tile
        self.max_tokens = -(-max_tokens // tile) * tile  # a tile may write past the last token
        self.max_outputs = -(-max_outputs // tile) * tile
        self._recorded: list[Recorded] = []
        self._work: dict[tuple[int, int, int], Work] = {}
        self._last_use = program.last_uses()
        self._readers: dict[Value, set[bool]] = {}  # by value, the kinds wanted: True fixed16, False float32
        self._outputs: set[Value] = set()  # values of the wanted tokens only
        self._buffers: dict[tuple[Value, bool], Any] = {}
        self._deferred: dict[Value, tuple[Any, DeferredNorm]] = {}  # half normed: squares, what is left to do
        self._free: dict[int, list[Any]] = {}
        self._lower()
        self.logits = self._buffers[program.logits, False]

    def work(self, size: StepSize) -> Work:
        """The dispatches of a step, in order."""
        splits = attention.n_splits(size.last_position + 1, SPLIT)  # all that the position decides
        key = (size.n_tokens, size.n_outputs, splits)
        if key not in self._work:
            self._work[key] = [item for recorded in self._recorded for item in recorded(size)]
        return self._work[key]

    # Walking the program

    def _lower(self) -> None:
        operations = self.program.operations
        for operation in operations:
            for value in inputs_of(operation):
                wanted = isinstance(operation, Linear) and self._wants_fixed16(operation.weight)
                self._readers.setdefault(value, set()).add(wanted)
        at = 0
        while at < len(operations):
            at += self._lower_next(operations[at : at + 8])
            for key in [key for key in self._buffers if self._last_use.get(key[0], at) < at]:
                buffer = self._buffers.pop(key)
                self._free.setdefault(buffer.size, []).append(buffer)

    def _lower_next(self, rest: tuple[Operation, ...]) -> int:
        """Lower the longest run of operations that one or two kernels do; returns how many those were."""
        match rest:
            case [
                Linear() as q,
                Linear() as k,
                Linear() as v,
                HeadNorm(x=q_in) as q_norm,
                HeadNorm(x=k_in) as k_norm,
                Rope() as q_rope,
                Rope() as k_rope,
                Append() as append,
            ] if (q_in, k_in) == (q.out, k.out) and _feeds_attention(q_norm.out, k_norm.out, v, q_rope, k_rope, append):
                self._attention_inputs((q, k, v), q_rope, append, (q_norm, k_norm))
                return 8
            case [
                Linear() as q,
                Linear() as k,
                Linear() as v,
                Rope() as q_rope,
                Rope() as k_rope,
                Append() as append,
                *_,
            ] if _feeds_attention(q.out, k.out, v, q_rope, k_rope, append):
                self._attention_inputs((q, k, v), q_rope, append, None)
                return 6
            case [Linear() as gate, Linear() as up, Gate() as op, *_] if (op.gate, op.up) == (gate.out, up.out):
                self._gated(gate, up, op)
                return 3
            case [Linear() as layer, Add() as op, *after] if op.y == layer.out and self._is_last_use(op.x, op):
                self._buffers[op.out, False] = self._buffers.pop((op.x, False))  # in place
                self._residual(layer, op, self._norm_to_defer(op.out, after))
                self._encode(op.out)
                return 2
            case [TakeOutputs() as take, Norm() as op, *_] if op.x == take.out:
                self._outputs |= {take.out, op.out}
                if op.out not in self._deferred:
                    self._norm(op, self._buffers[take.x, False], outputs=True)
                return 2
            case [Norm() as op, *_] if op.out in self._deferred:
                return 1
            case [Norm() as op, *_]:
                self._norm(op, self._buffers[op.x, False], outputs=False)
                return 1
            case [Attend() as op, *_]:
                self._attend(op)
                return 1
            case [Linear() as layer, *_]:
                if layer.x in self._outputs:
                    self._outputs.add(layer.out)
                self._linear(layer, self._plain(layer.out), "store", layer.out)
                self._encode(layer.out)
                return 1
            case [Embed() as op, *after]:
                self._embed(op, self._norm_to_defer(op.out, after))
                self._encode(op.out)
                return 1
            case [Add() as op, *_]:
                shader = add.shader(self.gpu, op.out.width)
                buffers = {"x": self._buffers[op.x, False], "y": self._buffers[op.y, False], "out": self._plain(op.out)}
                self._record(shader, buffers, lambda size: add.grid(op.out.width, size.n_tokens))
                self._encode(op.out)
                return 1
            case [operation, *_]:
                raise NotImplementedError(f"no kernel for {operation} here")
            case _:
                raise AssertionError("nothing left to lower")

    def _is_last_use(self, value: Value, operation: Operation) -> bool:
        return self.program.operations[self._last_use[value]] is operation

    # Buffers

    def _wants_fixed16(self, weight: str) -> bool:
        return self.weights.format(weight).activation == "fixed16"

    def _buffer(self, nbytes: int, label: str) -> Any:
        size = -(-nbytes // 16) * 16
        free = self._free.get(size)
        return free.pop() if free else self.gpu.empty(size, label)

    def _rows(self, value: Value) -> int:
        return self.max_outputs if value in self._outputs else self.max_tokens

    def _plain(self, value: Value) -> Any:
        """A buffer for a value as float32 [T, width]."""
        buffer = self._buffer(4 * self._rows(value) * value.width, value.label)
        self._buffers[value, False] = buffer
        return buffer

    def _fixed(self, value: Value) -> Any:
        """A buffer for a value in 16-bit fixed point."""
        buffer = self._buffer(4 * fixed16.words(self._rows(value), value.width), value.label)
        self._buffers[value, True] = buffer
        return buffer

    def _emitted(self, value: Value, fixed: bool) -> dict[str, Any]:
        """The binding of an emit_*.wgsl that writes a value in this kind."""
        return {"fixed": self._fixed(value)} if fixed else {"encoded": self._plain(value)}

    # Recording

    def _record(self, shader: Shader, buffers: dict[str, Any], grid: Callable[[StepSize], Grid]) -> None:
        dispatch = self.gpu.dispatch(shader, buffers)
        self._recorded.append(lambda size: [(dispatch, grid(size))])

    def _record_rows(self, shader: Shader, buffers: dict[str, Any], outputs: bool = False) -> None:
        """A kernel of one workgroup a token."""
        dispatch = self.gpu.dispatch(shader, buffers)
        if outputs:
            self._recorded.append(lambda size: [(dispatch, (size.n_outputs, 1, 1))] if size.n_outputs else [])
        else:
            self._recorded.append(lambda size: [(dispatch, (size.n_tokens, 1, 1))])

    def _encode(self, value: Value) -> None:
        """Make the fixed-point form of a value that lies as float32, if a layer reads it."""
        if True in self._readers.get(value, ()) and (value, True) not in self._buffers:
            shader = norm.encode_shader(self.gpu, value.width, fixed16=True)
            self._record_rows(shader, {"x": self._buffers[value, False], "fixed": self._fixed(value)})

    # One method a kernel

    def _norm_to_defer(self, x: Value, after: Sequence[Operation]) -> Norm | None:
        """The norm of x, if it comes next and the kernel that makes x can do its first half (of one token)."""
        match after:
            case [TakeOutputs() as take, Norm() as op, *_] if take.x == x and op.x == take.out:
                pass
            case [Norm() as op, *_] if op.x == x:
                pass
            case _:
                return None
        fits = self.tile == 1 and x.width % linear.BLOCK_ROWS == 0 and len(self._readers[op.out]) == 1
        return op if fits else None

    def _half_normed(self, op: Norm, n_squares: int) -> dict[str, Any]:
        """The bindings of a kernel that does the first half of a norm."""
        (fixed,) = self._readers[op.out]
        squares = self._buffer(4 * n_squares, "squares")
        self._deferred[op.out] = (squares, DeferredNorm(op.x.width, n_squares, op.eps))
        return self._emitted(op.out, fixed) | {"norm_weight": self.weights.vector(op.weight), "new_squares": squares}

    def _embed(self, op: Embed, norm: Norm | None) -> None:
        table = self.weights.matrix(op.table)
        out = self._plain(op.out)
        if norm and len(table.pieces) == 1:
            n_groups = embed.n_groups_normed(table.cols)
            buffers = {**table.pieces[0].planes, "step": self.step, "x": out, **self._half_normed(norm, n_groups)}
            fixed = "fixed" in buffers
            shader = embed.normed_shader(self.gpu, table.format, table.cols, op.scale, fixed)
            self._record(shader, buffers, lambda size: (n_groups, 1, 1))
            return
        for piece in table.pieces:
            shader = embed.shader(self.gpu, table.format, table.cols, piece.row_at, piece.n_rows, op.scale)
            buffers = {**piece.planes, "step": self.step, "x": out}
            self._record(shader, buffers, lambda size: embed.grid(table.cols, size.n_tokens))

    def _residual(self, layer: Linear, op: Add, norm: Norm | None) -> None:
        """A layer whose sums go onto the residual stream, and the first half of the norm that follows."""
        matrix = self.weights.matrix(layer.weight)
        out = self._buffers[op.out, False]
        if not norm or len(matrix.pieces) > 1:
            self._linear(layer, out, "residual", op.out)
            return
        shape = LinearShape(matrix.n_rows, matrix.cols).tuned(self.gpu, matrix.format, 1, whole_blocks=True)
        buffers = {**matrix.pieces[0].planes, "input": self._input(layer.x, matrix), "out": out}
        if layer.bias:
            buffers["bias"] = self.weights.vector(layer.bias)
        buffers |= self._half_normed(norm, shape.n_groups)
        self._record_linear(
            matrix,
            shape,
            "residual_normed",
            layer.x,
            buffers,
            bias=layer.bias is not None,
            emit_fixed16="fixed" in buffers,
        )

    def _record_linear(
        self, matrix: Matrix, shape: LinearShape, then: Any, x: Value, buffers: dict[str, Any], **options: Any
    ) -> None:
        """One dispatch of a linear layer, which also finishes the norm of its input where that was left to it."""
        self._recorded.append(self._linear_work(matrix, shape, then, x, buffers, **options))

    def _linear_work(
        self, matrix: Matrix, shape: LinearShape, then: Any, x: Value, buffers: dict[str, Any], **options: Any
    ) -> Recorded:
        if x in self._deferred:
            squares, options["norm"] = self._deferred[x]
            buffers = {**buffers, "squares": squares}
        dispatch = self.gpu.dispatch(linear.shader(self.gpu, matrix.format, shape, then, **options), buffers)
        if x in self._outputs:
            return lambda size: [(dispatch, shape.grid(size.n_outputs))] if size.n_outputs else []
        return lambda size: [(dispatch, shape.grid(size.n_tokens))]

    def _norm(self, op: Norm, x: Any, outputs: bool) -> None:
        for fixed in self._readers[op.out]:
            shader = norm.shader(self.gpu, op.x.width, op.eps, fixed, outputs)
            buffers = {"step": self.step, "x": x, "weight": self.weights.vector(op.weight)}
            self._record_rows(shader, buffers | self._emitted(op.out, fixed), outputs)

    def _linear(self, layer: Linear, out: Any, then: str, value: Value, out_at: int = 0) -> None:
        """One layer whose sums go into (or onto) `out`, from column out_at on of rows as wide as `value`."""
        bias = self.weights.vector(layer.bias) if layer.bias else None
        self._matvec(self.weights.matrix(layer.weight), layer.x, out, then, value.width, out_at, bias)

    def _matvec(
        self, matrix: Matrix, x: Value, out: Any, then: Any, out_width: int, out_at: int = 0, bias: Any = None
    ) -> None:
        outputs = x in self._outputs
        for piece in matrix.pieces:
            buffers = {**piece.planes, "input": self._input(x, matrix), "step": self.step, "out": out}
            if bias is not None:
                buffers["bias"] = bias

            def work(tile: int, piece: Piece = piece, buffers: dict[str, Any] = buffers) -> Recorded:
                shape = LinearShape(
                    n_rows=piece.n_rows,
                    cols=matrix.cols,
                    tile=tile,
                    out_width=out_width,
                    out_at=out_at + piece.row_at,
                    count_at=N_OUTPUTS if outputs else N_TOKENS,
                ).tuned(self.gpu, matrix.format, 1, whole_blocks=False)
                return self._linear_work(matrix, shape, then, x, buffers, bias=bias is not None)

            if outputs and self.tile > 1:  # a prompt wants the logits of one token only
                self._recorded.append(_by_outputs(work(1), work(self.tile)))
            else:
                self._recorded.append(work(self.tile))

    def _input(self, x: Value, matrix: Matrix) -> Any:
        return self._buffers[x, matrix.format.activation == "fixed16"]

    def _gated(self, gate: Linear, up: Linear, op: Gate) -> None:
        names = (gate.weight, up.weight)
        wanted = self._readers[op.out]
        same_rows = gate.out.width == up.out.width and not (gate.bias or up.bias)
        whole_blocks = op.out.width % linear.BLOCK_ROWS == 0 or wanted == {False}
        if len(wanted) == 1 and same_rows and whole_blocks and self.weights.can_join(names):
            (fixed,) = wanted
            matrix = self.weights.matrix(*names)
            shape = LinearShape(n_rows=op.out.width, cols=matrix.cols, tile=self.tile)
            shape = shape.tuned(self.gpu, matrix.format, 2, whole_blocks=True)
            buffers = {**matrix.pieces[0].planes, "input": self._input(gate.x, matrix), "step": self.step}
            buffers |= self._emitted(op.out, fixed)
            self._record_linear(matrix, shape, "gate", gate.x, buffers, activation=op.activation, emit_fixed16=fixed)
            return
        self._linear(gate, self._plain(gate.out), "store", gate.out)
        self._linear(up, self._plain(up.out), "store", up.out)
        for fixed in wanted:
            shader = norm.gate_shader(self.gpu, op.out.width, op.activation, fixed)
            buffers = {"gate": self._buffers[gate.out, False], "up": self._buffers[up.out, False]}
            self._record_rows(shader, buffers | self._emitted(op.out, fixed))

    def _attention_inputs(
        self,
        layers: tuple[Linear, Linear, Linear],
        q_rope: Rope,
        append: Append,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> None:
        """Q, K and V into one buffer [T, width], then the RoPE kernel, which also norms heads and fills the cache."""
        q, k, v = layers
        qkv = Value(-q.out.index, q.out.width + k.out.width + v.out.width, "qkv")
        out = self._plain(qkv)
        self._buffers[q_rope.out, False] = self._buffers.pop((qkv, False))  # what attention will read
        columns = (0, q.out.width, q.out.width + k.out.width)
        names = (q.weight, k.weight, v.weight)
        if self.weights.can_join(names):
            bias = None
            if q.bias or k.bias or v.bias:
                bias = self.weights.vector(q.bias, k.bias, v.bias, sizes=tuple(layer.out.width for layer in layers))
            self._matvec(self.weights.matrix(*names), q.x, out, "store", qkv.width, bias=bias)
        else:
            for layer, column in zip(layers, columns, strict=True):
                self._linear(layer, out, "store", qkv, column)
        program, table = self.program, q_rope.table
        shader = rope.shader(
            self.gpu,
            n_heads=program.n_heads,
            n_kv_heads=program.n_kv_heads,
            head_dim=program.head_dim,
            n_rot=table.n_rot,
            qkv_width=qkv.width,
            k_at=columns[1],
            v_at=columns[2],
            capacity=self.cache.capacity,
            layout=table.layout,
            mscale=table.mscale,
            qk_norm_eps=norms[0].eps if norms else None,
        )
        buffers = {
            "step": self.step,
            "turns": self._turns(table),
            "qkv": out,
            "k_cache": self.cache.k[append.layer],
            "v_cache": self.cache.v[append.layer],
        }
        if norms:
            buffers |= {"q_norm": self.weights.vector(norms[0].weight), "k_norm": self.weights.vector(norms[1].weight)}
        self._record(shader, buffers, lambda size: rope.grid(program.n_heads, program.n_kv_heads, size.n_tokens))

    def _turns(self, table: RopeTable) -> Any:
        return self.weights.constant(rope.turns_to_words(table.turns), "rope turns")

    def _attend(self, op: Attend) -> None:
        program = self.program
        n_heads, head_dim, capacity = program.n_heads, program.head_dim, self.cache.capacity
        to_fixed16 = self._readers[op.out] == {True} and head_dim % fixed16.BLOCK == 0
        out = self._emitted(op.out, to_fixed16)
        qkv_width = (n_heads + 2 * program.n_kv_heads) * head_dim
        reads = {"step": self.step, "qkv": self._buffers[op.q, False]}
        reads |= {"k_cache": self.cache.k[op.layer], "v_cache": self.cache.v[op.layer]}

        def shader(split: int, fixed: bool) -> Shader:
            return attention.shader(
                self.gpu,
                n_heads=n_heads,
                n_kv_heads=program.n_kv_heads,
                head_dim=head_dim,
                qkv_width=qkv_width,
                capacity=capacity,
                scale=op.scale,
                split=split,
                emit_fixed16=fixed,
                workgroup=self.gpu.max_workgroup,
            )

        whole = self.gpu.dispatch(shader(0, to_fixed16), reads | out)
        if self.tile > 1 or capacity <= SPLIT:
            self._recorded.append(lambda size: [(whole, attention.grid(n_heads, size.n_tokens))])
        else:
            size_of = attention.partials_size(self.max_tokens, n_heads, head_dim, capacity, SPLIT)
            partials = self._buffer(4 * size_of, "attention partials")
            combine_shader = attention.combine_shader(
                self.gpu, n_heads=n_heads, head_dim=head_dim, capacity=capacity, split=SPLIT, emit_fixed16=to_fixed16
            )
            split = self.gpu.dispatch(shader(SPLIT, False), reads | {"partials": partials})
            combine = self.gpu.dispatch(combine_shader, {"step": self.step, "partials": partials} | out)
            self._free.setdefault(partials.size, []).append(partials)

            def attend(size: StepSize) -> Work:
                splits = attention.n_splits(size.last_position + 1, SPLIT)
                if splits == 1:
                    return [(whole, attention.grid(n_heads, size.n_tokens))]
                return [
                    (split, attention.grid(n_heads, size.n_tokens, splits)),
                    (combine, attention.combine_grid(n_heads, size.n_tokens)),
                ]

            self._recorded.append(attend)
        self._encode(op.out)


def _feeds_attention(q: Value, k: Value, v: Linear, q_rope: Rope, k_rope: Rope, append: Append) -> bool:
    """Whether these ropes rotate q and k by one table, and the append stores k and v."""
    same_table = q_rope.table is k_rope.table
    return same_table and (q_rope.x, k_rope.x) == (q, k) and (append.k, append.v) == (k_rope.out, v.out)


def _by_outputs(single: Recorded, tiled: Recorded) -> Recorded:
    return lambda size: single(size) if size.n_outputs == 1 else tiled(size)
