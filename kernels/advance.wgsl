// The end of a greedy step: the chosen token becomes the next step's input, so that the step after needs no CPU.
// Expects N_GROUPS (slices that argmax.wgsl wrote), N_RESULTS (length of the ring); needs better.wgsl. One
// thread does it. Logits that are NaN are told as NO_TOKEN.

@group(0) @binding(auto) var<storage, read> best: array<vec2<u32>>;             // [N_GROUPS] (logit's bits, id)
@group(0) @binding(auto) var<storage, read_write> step: array<u32>;
@group(0) @binding(auto) var<storage, read_write> results: array<u32>;          // [N_RESULTS] token ids, a ring

@compute @workgroup_size(1)
fn main() {
    var logit = bitcast<f32>(best[0].x);
    var id = best[0].y;
    for (var i = 1u; i < N_GROUPS; i++) {
        let other = bitcast<f32>(best[i].x);
        if (is_better(other, best[i].y, logit, id)) {
            logit = other;
            id = best[i].y;
        }
    }
    let is_nan = (bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u;  // by its bits: drivers may fold logit != logit
    results[step[3] % N_RESULTS] = select(id, NO_TOKEN, is_nan);
    let position = step[17u + 2u * (step[0] - 1u)];
    step[0] = 1u;           // one token
    step[1] = 0u;           // whose logits are wanted
    step[2] = 1u;
    step[3] += 1u;          // steps done
    step[16] = id;
    step[17] = position + 1u;
}
