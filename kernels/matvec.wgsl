// A linear layer of one token: y[row] = sum over columns of W[row, c] * x[c]. Decode spends its time here.
//
// A team of LANES threads computes ROWS rows (1, 2 or 4) of each of PARTS matrices (two for gate and up): its lanes take
// every LANES-th block of the rows, then add up. TEAMS teams make a workgroup of GROUP_ROWS rows.
// Expects LANES, TEAMS, WORKGROUP = LANES * TEAMS, ROWS, PARTS, STEPS (blocks a row), N_ROWS (rows of a part), TILE = 1;
// the weight format's load_block and block_dot; an input_*.wgsl (stage_input, load_activation), a scale_*.wgsl
// (input_squares, input_scale), a reduce_*.wgsl and a linear_*.wgsl (prepare, finish).

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

    // what the end will need, asked for before the long loop
    let early = prepare(group_row, thread);
    let squares = input_squares(lane);
    stage_input(thread);

    var first = vec4<f32>();
    var second = vec4<f32>();
    for (var b = lane; b < STEPS; b += LANES) {
        let x = load_activation(0u, b);
        first += dot_rows(blocks + b, x);
        if (PARTS == 2u) {
            second += dot_rows(blocks + (N_ROWS * STEPS + b), x);
        }
    }

    if (PARTS == 2u && ROWS <= 2u) {  // both in one reduction
        let both = team_sum(vec4<f32>(first.xy, second.xy), thread);
        first = vec4<f32>(both.xy, 0.0, 0.0);
        second = vec4<f32>(both.zw, 0.0, 0.0);
    } else {
        first = team_sum(first, thread);
        if (PARTS == 2u) {
            second = team_sum(second, thread);
        }
    }
    let scale = input_scale(squares, thread);
    if (lane < ROWS) {
        values[team * ROWS + lane] = scale * first[lane];
        if (PARTS == 2u) {
            values[GROUP_ROWS + team * ROWS + lane] = scale * second[lane];
        }
    }
    workgroupBarrier();
    finish(group_row, 0u, early, thread);
}
