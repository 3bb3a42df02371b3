// Sums and maxima over the threads of a workgroup, through shared memory, for devices without subgroups.
// reduce_subgroup.wgsl: the same by shuffles. Expects WORKGROUP and LANES (powers of two, LANES <= WORKGROUP).
//
// A butterfly: in step s a thread adds the value of thread ^ s. Its order is fixed, so the same input gives the same
// bits, in every thread of a team alike. All threads of the workgroup must call these functions together.

var<workgroup> value_of_thread: array<vec4<f32>, WORKGROUP>;

// The value that thread `other` holds; the barrier before guards those still reading the last one.
fn exchange(value: vec4<f32>, thread: u32, other: u32) -> vec4<f32> {
    workgroupBarrier();
    value_of_thread[thread] = value;
    workgroupBarrier();
    return value_of_thread[other];
}

fn sum_over(value: vec4<f32>, lanes: u32, thread: u32) -> vec4<f32> {
    var sum = value;
    for (var distance = 1u; distance < lanes; distance *= 2u) {
        sum += exchange(sum, thread, thread ^ distance);
    }
    return sum;
}

fn max_over(value: f32, lanes: u32, thread: u32) -> f32 {
    var largest = value;
    for (var distance = 1u; distance < lanes; distance *= 2u) {
        largest = max(largest, exchange(vec4<f32>(largest), thread, thread ^ distance).x);
    }
    return largest;
}
