//! An engine's metrics, read into what it says of its own requests.
//!
//! A number that the page lacks is missing and never zero, so an engine that was started without its metrics does not look idle.

use crate::engines::{EngineMetrics, Names};
use crate::metric::{Reading, samples};
use crate::miss::Miss;
use crate::models::Serving;
use crate::poll::{LoadPage, PageFacts};
use std::sync::Arc;
use std::time::Duration;
use tidegate_config::{Engine, MetricsSource};
use tidegate_core::load::{LoadReport, WorkReport};
use tidegate_core::time::Instant;

/// How far back rates and quantiles of `load` look.
const WINDOW: Duration = Duration::from_secs(30);

/// The metrics page of one endpoint.
pub(crate) struct MetricsPage {
    engine: Option<Engine>,
    load: Option<Reading>,
    serving: Option<Arc<Serving>>,
    facts: PageFacts,
}

impl MetricsPage {
    pub(crate) fn new(source: &MetricsSource, serving: Option<Arc<Serving>>) -> Self {
        let load = source.load.clone().map(|expression| Reading::new(expression, WINDOW));
        Self { engine: source.engine, load, serving, facts: PageFacts::default() }
    }
}

impl LoadPage for MetricsPage {
    const SOURCE: &'static str = "metrics";
    /// Pages of engines with many models and histograms have some hundred kilobytes.
    const LIMIT_BYTES: usize = 4 << 20;

    fn read(&mut self, sampled_at: Instant, body: &[u8]) -> Result<LoadReport, Miss> {
        let page = String::from_utf8_lossy(body);
        let names = match self.engine {
            Some(engine) => EngineMetrics::of(engine),
            None => EngineMetrics::detect(&page),
        };
        self.facts = PageFacts { engine: names.map(|n| n.engine.as_str()), ..PageFacts::default() };
        if let Some(serving) = &self.serving {
            serving.on_metrics(&page);
        }
        let work = names.map(|names| work(names, &page)).unwrap_or_default();
        let named = [
            ("running", work.running),
            ("waiting", work.waiting),
            ("generated_tokens", work.generated_total),
            ("prompt_tokens", work.prompt_total),
            ("kv_usage", work.kv_usage),
        ];
        named.iter().for_each(|(name, value)| self.facts.note(name, value.is_some()));
        let load = self.load.as_mut().map(|reading| reading.on_page(sampled_at, &page));
        if let Some(load) = &load {
            self.facts.note("load", load.is_ok());
        }
        let load = load.and_then(Result::ok);
        if work.is_empty() && load.is_none() {
            return Err(Miss::NoSeries(names.map_or("no engine is known by its names", |n| n.hint)));
        }
        Ok(LoadReport { sampled_at, load, work, ..LoadReport::default() })
    }

    fn facts(&self) -> PageFacts {
        self.facts.clone()
    }
}

/// What `page` says by these names.
fn work(names: &EngineMetrics, page: &str) -> WorkReport {
    WorkReport {
        running: sum(names.running, page),
        waiting: sum(names.waiting, page),
        queued_tokens: None,
        generated_total: sum(names.generated, page),
        prompt_total: sum(names.prompt, page),
        kv_usage: fold(names.kv, page, f64::max),
    }
}

fn sum(names: Names, page: &str) -> Option<f64> {
    fold(names, page, |a, b| a + b)
}

/// The series of the first name that is there, put together. A number that is none makes the whole one: it must not be overlooked.
fn fold(names: Names, page: &str, both: impl Fn(f64, f64) -> f64) -> Option<f64> {
    names.iter().find_map(|series| {
        let fits =
            |s: &crate::metric::Sample<'_>| series.label.is_none_or(|(name, value)| s.label(name) == Some(value));
        let values = samples(page, series.name).filter(fits).map(|s| s.value);
        values.reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { both(a, b) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(engine: Option<Engine>) -> MetricsPage {
        MetricsPage { engine, load: None, serving: None, facts: PageFacts::default() }
    }

    fn read(text: &str) -> WorkReport {
        page(None).read(Instant::from_nanos(1), text.as_bytes()).unwrap().work
    }

    #[test]
    fn vllm_s_page_is_read_with_its_ranks_added() {
        let text = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
            vllm:num_requests_waiting{engine=\"0\"} 9.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n\
            vllm:prompt_tokens_total{engine=\"0\"} 1e6\nvllm:generation_tokens_total{engine=\"0\"} 2e5\nvllm:generation_tokens_created 1.7e9\n";
        let expected = WorkReport {
            running: Some(7.0),
            waiting: Some(9.0),
            queued_tokens: None,
            generated_total: Some(2e5),
            prompt_total: Some(1e6),
            kv_usage: Some(0.5),
        };
        assert_eq!(read(text), expected);
    }

    #[test]
    fn only_requests_that_wait_for_room_count_where_reasons_are_told() {
        let text = "vllm:num_requests_waiting 9\nvllm:num_requests_waiting_by_reason{reason=\"deferred\"} 7\n\
            vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 2\n";
        assert_eq!(read(text).waiting, Some(2.0));
        assert_eq!(read("vllm:num_requests_waiting 9\n").waiting, Some(9.0));
    }

    #[test]
    fn every_engine_s_own_names_are_found_and_what_it_lacks_stays_missing() {
        let counts = |text: &str| {
            let work = read(text);
            (work.running, work.waiting, work.kv_usage)
        };
        for (text, expected) in [
            (
                "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\nvllm:gpu_cache_usage_perc 0.1\n",
                (Some(1.0), Some(2.0), Some(0.1)),
            ),
            (
                "sglang:num_running_reqs 1\nsglang:num_queue_reqs 2\nsglang:token_usage 0.1\n",
                (Some(1.0), Some(2.0), Some(0.1)),
            ),
            (
                "trtllm_num_requests_running 1\ntrtllm_num_requests_waiting 2\ntrtllm_kv_cache_utilization 0.1\n",
                (Some(1.0), Some(2.0), Some(0.1)),
            ),
            (
                "nv_trt_llm_request_metrics{request_type=\"scheduled\"} 1\nnv_trt_llm_request_metrics{request_type=\"waiting\"} 2\n\
                 nv_trt_llm_request_metrics{request_type=\"max\"} 512\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.1\n\
                 nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 4000\n",
                (Some(1.0), Some(2.0), Some(0.1)),
            ),
            (
                "nv_inference_request_success{model=\"a\",version=\"1\"} 7\nnv_inference_pending_request_count{model=\"a\",version=\"1\"} 2\n\
                 nv_inference_pending_request_count{model=\"b\",version=\"1\"} 3\nnv_cpu_utilization 1\n",
                (None, Some(5.0), None),
            ),
            ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n", (Some(1.0), Some(2.0), None)),
            ("tgi_batch_current_size 1\ntgi_queue_size 2\n", (Some(1.0), Some(2.0), None)),
            ("te_queue_size 2\n", (None, Some(2.0), None)),
        ] {
            assert_eq!(counts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_page_without_series_is_a_miss_that_says_why() {
        for (engine, text, why) in [
            (Some(Engine::Vllm), "python_info 1\n", "--disable-log-stats"),
            (
                None,
                "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n",
                "--disable-log-stats",
            ),
            (None, "up 1\n", "no engine is known by its names"),
            (Some(Engine::Sglang), "vllm:num_requests_running 0\n", "--enable-metrics"),
            (None, "", "no engine"),
        ] {
            let said = page(engine).read(Instant::from_nanos(1), text.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_impossible_is_told_as_it_is() {
        for text in [
            "vllm:kv_cache_usage_perc 42\n",
            "vllm:num_requests_running NaN\nvllm:num_requests_running 1\n",
            "tgi_queue_size -1\n",
        ] {
            let report = page(None).read(Instant::from_nanos(1), text.as_bytes()).unwrap();
            assert!(!report.is_possible(), "{text}");
        }
    }

    #[test]
    fn facts_say_what_is_there_and_what_is_not() {
        let mut p = page(None);
        p.read(Instant::from_nanos(1), b"sglang:num_running_reqs 1\nsglang:token_usage 0\n").unwrap();
        let facts = p.facts();
        assert_eq!(facts.engine, Some("sglang"));
        assert_eq!(facts.present, ["running", "kv_usage"]);
        assert_eq!(facts.missing, ["waiting", "generated_tokens", "prompt_tokens"]);
    }
}
