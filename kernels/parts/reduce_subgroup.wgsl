// Sums and maxima over the threads of a workgroup, by subgroup shuffles. reduce_shared.wgsl: the same without.
// Expects WORKGROUP and LANES (powers of two, LANES <= WORKGROUP) and SUBGROUP_SIZE (0: unknown, ask on the GPU).
//
// A butterfly: in step s a thread adds the value of thread ^ s. Its order is fixed, so the same input gives the same
// bits, in every thread of a team alike. All threads of the workgroup must call these functions together.

const SMALLEST_SUBGROUP = 4u;

var<workgroup> result_of_subgroup: array<vec4<f32>, WORKGROUP / SMALLEST_SUBGROUP>;

fn subgroup_width() -> u32 {
    if (SUBGROUP_SIZE != 0u) {
        return SUBGROUP_SIZE;
    }
    return subgroupAdd(1u);
}

fn butterfly_sum(value: vec4<f32>, width: u32) -> vec4<f32> {
    var sum = value;
    if (width > 1u) { sum += subgroupShuffleXor(sum, 1u); }
    if (width > 2u) { sum += subgroupShuffleXor(sum, 2u); }
    if (width > 4u) { sum += subgroupShuffleXor(sum, 4u); }
    if (width > 8u) { sum += subgroupShuffleXor(sum, 8u); }
    if (width > 16u) { sum += subgroupShuffleXor(sum, 16u); }
    if (width > 32u) { sum += subgroupShuffleXor(sum, 32u); }
    if (width > 64u) { sum += subgroupShuffleXor(sum, 64u); }
    return sum;
}

fn butterfly_max(value: f32, width: u32) -> f32 {
    var largest = value;
    if (width > 1u) { largest = max(largest, subgroupShuffleXor(largest, 1u)); }
    if (width > 2u) { largest = max(largest, subgroupShuffleXor(largest, 2u)); }
    if (width > 4u) { largest = max(largest, subgroupShuffleXor(largest, 4u)); }
    if (width > 8u) { largest = max(largest, subgroupShuffleXor(largest, 8u)); }
    if (width > 16u) { largest = max(largest, subgroupShuffleXor(largest, 16u)); }
    if (width > 32u) { largest = max(largest, subgroupShuffleXor(largest, 32u)); }
    if (width > 64u) { largest = max(largest, subgroupShuffleXor(largest, 64u)); }
    return largest;
}

// Leave the result of each subgroup where the others find it; the barrier before guards those still reading.
fn publish(value: vec4<f32>, width: u32, thread: u32) {
    workgroupBarrier();
    if (thread % width == 0u) {
        result_of_subgroup[thread / width] = value;
    }
    workgroupBarrier();
}

fn sum_over(value: vec4<f32>, lanes: u32, thread: u32) -> vec4<f32> {
    let width = min(subgroup_width(), lanes);
    var sum = butterfly_sum(value, width);
    if (width < lanes) {
        publish(sum, width, thread);
        let first = (thread & ~(lanes - 1u)) / width;
        let results = lanes / width;
        if (results <= width) {
            sum = butterfly_sum(result_of_subgroup[first + thread % results], results);
        } else {
            sum = result_of_subgroup[first];
            for (var i = 1u; i < results; i++) {
                sum += result_of_subgroup[first + i];
            }
        }
    }
    return sum;
}

fn max_over(value: f32, lanes: u32, thread: u32) -> f32 {
    let width = min(subgroup_width(), lanes);
    var largest = butterfly_max(value, width);
    if (width < lanes) {
        publish(vec4<f32>(largest), width, thread);
        let first = (thread & ~(lanes - 1u)) / width;
        for (var i = 0u; i < lanes / width; i++) {
            largest = max(largest, result_of_subgroup[first + i].x);
        }
    }
    return largest;
}
