//! `GET /metrics` under the names that vLLM uses, in the Prometheus text format.

use std::fmt::Write as _;

use tidegate_sim::engine::Status;

/// The page.
pub(super) fn render(status: &Status, cached_tokens: u64, model: &str) -> String {
    let label = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut out = String::with_capacity(1024);
    let mut series = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = write!(
            out,
            "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}\nvllm:{name}{{model_name=\"{label}\"}} {value}\n"
        );
    };
    series("num_requests_running", "gauge", "Requests in the running batch.", f64::from(status.running));
    series("num_requests_waiting", "gauge", "Requests waiting for the batch.", f64::from(status.waiting));
    series("kv_cache_usage_perc", "gauge", "Used share of KV memory, 0 to 1.", status.kv_usage);
    let prompts = status.prompt_tokens + cached_tokens;
    series("prompt_tokens_total", "counter", "Prompt tokens computed or found in the prefix cache.", prompts as f64);
    series("prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", prompts as f64);
    series("generation_tokens_total", "counter", "Tokens generated.", status.generation_tokens as f64);
    series("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", cached_tokens as f64);
    series("num_preemptions_total", "counter", "Requests preempted for want of KV memory.", status.preemptions as f64);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_help_type_and_label() {
        let page = render(&Status { running: 3, kv_usage: 0.25, ..Status::default() }, 9, "m\"x");
        assert!(page.contains("vllm:num_requests_running{model_name=\"m\\\"x\"} 3\n"), "{page}");
        assert!(page.contains("vllm:kv_cache_usage_perc{model_name=\"m\\\"x\"} 0.25\n"));
        assert!(page.contains("vllm:prefix_cache_hits_total{model_name=\"m\\\"x\"} 9\n"));
        let count = |what| page.matches(what).count();
        assert_eq!((count("# HELP"), count("# TYPE"), count("{model_name=")), (8, 8, 8));
    }
}
