// A linear layer of one token: y[row] = sum over columns of W[row, c] * x[c]. Decode spends its time here.
//
// A team of LANES threads computes ROWS rows (1, 2 or 4) of each of PARTS matrices (two for gate and up): its lanes take
// every LANES-th block of the rows, then add up. TEAMS teams make a workgroup of GROUP_ROWS rows.
// Expects LANES, TEAMS, WORKGROUP = LANES * TEAMS, ROWS, PARTS, STEPS (blocks a row), N_ROWS (rows of a part), TILE = 1;
// the weight format's load_block and block_dot; an input_*.wgsl (load_activation), a scale_*.wgsl (input_scale), a
// reduce_*.wgsl and a linear_*.wgsl (finish).

fn dot_rows(first_block: vec4<u32>, x: Activation) -> vec4<f32> {
    var y = vec4<f32>(block_dot(load_block(first_block.x), x), 0.0, 0.0, 0.0);
    if (ROWS > 1u) {
        y.y = block_dot(load_block(first_block.y), x);
    }
    if (ROWS > 2u) {
        y.z = block_dot(load_block(first_block.z), x);
        y.w = block_dot(load_block(first_block.w), x);
    }
    return y;
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let lane = thread % LANES;
    let team = thread / LANES;
    let group_row = group.x * GROUP_ROWS;
    let row = group_row + team * ROWS;
    // past the end, a team repeats the last row, and nothing is stored
    let blocks = min(vec4<u32>(row, row + 1u, row + 2u, row + 3u), vec4<u32>(N_ROWS - 1u)) * STEPS;

    let scale = input_scale(lane, thread);
    var first = vec4<f32>();
    var second = vec4<f32>();
    for (var b = lane; b < STEPS; b += LANES) {
        let x = load_activation(0u, b);
        first += dot_rows(blocks + b, x);
        if (PARTS == 2u) {
            second += dot_rows(blocks + (N_ROWS * STEPS + b), x);
        }
    }

    first = scale * team_sum(first, thread);
    if (lane < ROWS) {
        values[team * ROWS + lane] = first[lane];
    }
    if (PARTS == 2u) {
        second = scale * team_sum(second, thread);
        if (lane < ROWS) {
            values[GROUP_ROWS + team * ROWS + lane] = second[lane];
        }
    }
    workgroupBarrier();
    finish(group_row, 0u, thread);
}
