// The largest logit of each of N_GROUPS slices of the last output row; advance.wgsl takes the largest of those.
// Expects N_VOCAB, N_GROUPS, WORKGROUP; needs better.wgsl.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read> logits: array<f32>;                 // [n_outputs, N_VOCAB]
@group(0) @binding(auto) var<storage, read_write> best: array<vec2<u32>>;       // [N_GROUPS] (logit's bits, id)

var<workgroup> best_logit: array<f32, WORKGROUP>;
var<workgroup> best_id: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = (step[2] - 1u) * N_VOCAB;
    var logit = 0.0;
    var id = NO_TOKEN;
    for (var i = group.x * WORKGROUP + thread; i < N_VOCAB; i += N_GROUPS * WORKGROUP) {
        if (is_better(logits[row + i], i, logit, id)) {
            logit = logits[row + i];
            id = i;
        }
    }
    best_logit[thread] = logit;
    best_id[thread] = id;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            let other = thread + half;
            if (is_better(best_logit[other], best_id[other], best_logit[thread], best_id[thread])) {
                best_logit[thread] = best_logit[other];
                best_id[thread] = best_id[other];
            }
        }
    }
    if (thread == 0u) {
        best[group.x] = vec2<u32>(bitcast<u32>(best_logit[0]), best_id[0]);
    }
}
