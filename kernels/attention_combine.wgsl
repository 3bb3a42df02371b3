// Merge the splits of attention.wgsl: one workgroup per (head, token); the contract: attention.py.
// Expects WORKGROUP, N_HEADS, HEAD_DIM, WINDOW, SPLIT, SPLITS; a reduce_*.wgsl; attention_result.wgsl (finish).

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read> partials: array<f32>;       // [T, N_HEADS, SPLITS, HEAD_DIM + 2]

const LOWEST = -1e30;  // below any score

var<workgroup> weights: array<f32, SPLITS>;
var<workgroup> values: array<f32, HEAD_DIM>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let token = group.y;
    let position = step[17u + 2u * token];

    // The splits that hold a position of this token's, by the same rule as in attention.wgsl.
    let end = position / SPLIT + 1u;
    var begin = 0u;
    if (WINDOW != 0u && position >= WINDOW) {
        begin = (position + 1u - WINDOW) / SPLIT;
    }

    let row = (token * N_HEADS + head) * SPLITS;
    var largest = LOWEST;
    for (var split = begin + thread; split < end; split += WORKGROUP) {
        largest = max(largest, partials[(row + split) * (HEAD_DIM + 2u)]);
    }
    largest = workgroup_max(largest, thread);
    var total = 0.0;
    for (var split = begin + thread; split < end; split += WORKGROUP) {
        let at = (row + split) * (HEAD_DIM + 2u);
        let weight = exp(partials[at] - largest);
        weights[split] = weight;
        total += weight * partials[at + 1u];
    }
    total = workgroup_sum(total, thread);
    workgroupBarrier();

    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        var value = 0.0;
        for (var split = begin; split < end; split++) {
            value += weights[split] * partials[(row + split) * (HEAD_DIM + 2u) + 2u + i];
        }
        values[i] = value;
    }
    workgroupBarrier();
    finish(token, head, 0u, largest, total, thread);
}
