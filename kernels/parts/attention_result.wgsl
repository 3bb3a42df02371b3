// Ends attention.wgsl and attention_combine.wgsl: write the head's result, as the output projection reads it.
// Needs an emit_*.wgsl. attention_partial.wgsl: where the context is split.

fn finish(token: u32, head: u32, split: u32, largest: f32, total: f32, thread: u32) {
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        values[i] /= total;
    }
    workgroupBarrier();
    emit(0u, HEAD_DIM, token, head * HEAD_DIM, thread);
}
