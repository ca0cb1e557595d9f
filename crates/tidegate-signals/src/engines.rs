//! What the metrics of each engine are called: the one place to change when an engine renames them.
//!
//! Counts of all series of a name are added, as an engine with several ranks or models has one series for each; of used KV memory the fullest
//! counts. Totals of tokens are listed only where they grow while an answer is being made: SGLang, TGI and llama.cpp add them when a request
//! has ended, and such a count, which stands still through a long answer, would look like a page that is frozen. TensorRT-LLM's and Triton's
//! pages have no such total.

use tidegate_config::Engine;

/// A number that is looked for: by name and one label, or by other names that it had or has, in the order in which they are tried.
pub(crate) type Names = &'static [Series];

/// The series of one name; where there is a label, only those that carry it with this value.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) label: Option<(&'static str, &'static str)>,
}

/// One engine's names; an empty list where it exposes no such number.
#[derive(Debug)]
pub(crate) struct EngineMetrics {
    pub(crate) engine: Engine,
    /// What the names of its metrics begin with.
    pub(crate) prefix: &'static str,
    /// Why a page may lack them all.
    pub(crate) hint: &'static str,
    pub(crate) running: Names,
    pub(crate) waiting: Names,
    pub(crate) generated: Names,
    pub(crate) prompt: Names,
    pub(crate) kv: Names,
}

const fn plain(name: &'static str) -> Series {
    Series { name, label: None }
}

const fn with(name: &'static str, label: &'static str, value: &'static str) -> Series {
    Series { name, label: Some((label, value)) }
}

/// All engines, in the order in which a page is compared with them.
pub(crate) static ENGINES: &[EngineMetrics] = &[
    EngineMetrics {
        engine: Engine::Vllm,
        prefix: "vllm:",
        hint: "vLLM exposes none with --disable-log-stats",
        running: &[plain("vllm:num_requests_running")],
        // The plain count holds requests, too, that wait for something else than room, such as a KV transfer.
        waiting: &[
            with("vllm:num_requests_waiting_by_reason", "reason", "capacity"),
            plain("vllm:num_requests_waiting"),
        ],
        generated: &[plain("vllm:generation_tokens_total")],
        prompt: &[plain("vllm:prompt_tokens_total")],
        kv: &[plain("vllm:kv_cache_usage_perc"), plain("vllm:gpu_cache_usage_perc")],
    },
    EngineMetrics {
        engine: Engine::Sglang,
        prefix: "sglang:",
        hint: "SGLang exposes none without --enable-metrics",
        running: &[plain("sglang:num_running_reqs")],
        waiting: &[plain("sglang:num_queue_reqs")],
        generated: &[],
        prompt: &[],
        kv: &[plain("sglang:token_usage")],
    },
    EngineMetrics {
        engine: Engine::TrtLlm,
        prefix: "trtllm_",
        hint: "trtllm-serve exposes them at /prometheus/metrics, or at /metrics, by its version",
        running: &[plain("trtllm_num_requests_running")],
        waiting: &[plain("trtllm_num_requests_waiting")],
        generated: &[],
        prompt: &[],
        kv: &[plain("trtllm_kv_cache_utilization")],
    },
    EngineMetrics {
        engine: Engine::Triton,
        prefix: "nv_",
        hint: "Triton exposes them on a port of their own, 8002 by default, once it has a model",
        running: &[with("nv_trt_llm_request_metrics", "request_type", "scheduled")],
        // Other backends than TensorRT-LLM's tell what waits, of every model, and not what runs.
        waiting: &[
            with("nv_trt_llm_request_metrics", "request_type", "waiting"),
            plain("nv_inference_pending_request_count"),
        ],
        generated: &[],
        prompt: &[],
        kv: &[with("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction")],
    },
    EngineMetrics {
        engine: Engine::LlamaCpp,
        prefix: "llamacpp:",
        hint: "llama-server exposes none without --metrics",
        running: &[plain("llamacpp:requests_processing")],
        waiting: &[plain("llamacpp:requests_deferred")],
        generated: &[],
        prompt: &[],
        kv: &[],
    },
    EngineMetrics {
        engine: Engine::Tgi,
        prefix: "tgi_",
        hint: "TGI exposes them from its first request on",
        running: &[plain("tgi_batch_current_size")],
        waiting: &[plain("tgi_queue_size")],
        generated: &[],
        prompt: &[],
        kv: &[],
    },
    EngineMetrics {
        engine: Engine::Tei,
        prefix: "te_",
        hint: "TEI exposes them from its first request on",
        running: &[],
        waiting: &[plain("te_queue_size")],
        generated: &[],
        prompt: &[],
        kv: &[],
    },
];

impl EngineMetrics {
    /// The names of `engine`.
    pub(crate) fn of(engine: Engine) -> Option<&'static Self> {
        ENGINES.iter().find(|e| e.engine == engine)
    }

    /// The engine whose page this is, by the names on it. O(lines of the page) up to the first that tells.
    pub(crate) fn detect(page: &str) -> Option<&'static Self> {
        page.lines().find_map(|line| {
            let line = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
            ENGINES.iter().find(|e| line.starts_with(e.prefix))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_here_once_and_known_by_its_own_names() {
        for engine in Engine::ALL {
            let found = EngineMetrics::of(engine).unwrap();
            assert_eq!(ENGINES.iter().filter(|e| e.engine == engine).count(), 1);
            for name in [found.running, found.waiting, found.generated, found.prompt, found.kv].into_iter().flatten() {
                let page = format!("# HELP python_info x\npython_info 1\n{} 3\n", name.name);
                assert_eq!(EngineMetrics::detect(&page).map(|e| e.engine), Some(engine), "{}", name.name);
            }
        }
        assert!(EngineMetrics::detect("up 1\nprocess_start_time_seconds 7\n").is_none());
    }
}
