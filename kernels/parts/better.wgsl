// Which of two candidates a greedy choice takes: the larger logit, the lower id in a tie; NO_TOKEN never.

const NO_TOKEN: u32 = 0xffffffffu;

fn is_better(logit: f32, id: u32, than_logit: f32, than_id: u32) -> bool {
    if (id == NO_TOKEN || than_id == NO_TOKEN) {
        return id != NO_TOKEN;
    }
    return logit > than_logit || (logit == than_logit && id < than_id);
}
