// Ends attention.wgsl where the context is split: write what attention_combine.wgsl merges. Expects SPLITS.

@group(0) @binding(auto) var<storage, read_write> partials: array<f32>; // [T, N_HEADS, SPLITS, HEAD_DIM + 2]

fn finish(token: u32, head: u32, split: u32, largest: f32, total: f32, thread: u32) {
    let at = ((token * N_HEADS + head) * SPLITS + split) * (HEAD_DIM + 2u);
    if (thread == 0u) {
        partials[at] = largest;
        partials[at + 1u] = total;
    }
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        partials[at + 2u + i] = values[i];
    }
}
