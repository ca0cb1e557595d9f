//! Step times against computation by hand.

use super::*;

fn request(prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    EngineRequest { prompt_tokens, cached_tokens: 0, query: None, output_tokens, stream: true }
}

fn accept(e: &mut Llm, now: Instant, r: EngineRequest) -> RequestId {
    match e.arrive(now, &r) {
        Admission::Accepted(id) => id,
        Admission::Rejected(r) => panic!("rejected: {r:?}"),
    }
}

fn run(e: &mut Llm, until_s: f64) -> Vec<(u64, u64, Emitted)> {
    let mut out = Vec::new();
    e.advance(Instant::from_secs_f64(until_s), &mut out);
    out.iter().map(|x| (x.at.as_nanos() / 1000, x.id.0, x.what)).collect()
}

#[test]
fn one_request_alone() {
    let mut e = Llm::new(LlmParams::A100_8B, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(1000, 3));
    // Prefill: 10 ms + 0.066 * (1000 - 64) = 71.776 ms. Decode: 10 ms + 0.08 us * 1000, then * 1001.
    let (a, b, c) = (71_776, 71_776 + 10_080, 71_776 + 10_080 + 10_080);
    assert_eq!(
        run(&mut e, 1.0),
        [
            (a, 0, Emitted::Token(1)),
            (b, 0, Emitted::Token(2)),
            (c, 0, Emitted::Token(3)),
            (c, 0, Emitted::Done { tokens: 3 })
        ]
    );
    assert_eq!((e.next_event_at(), e.reserved), (None, 0), "idle again");
}

#[test]
fn a_long_prompt_is_computed_in_chunks_of_the_budget() {
    let mut e = Llm::new(LlmParams::A100_8B, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(5000, 1));
    // Chunks 2048, 2048, 904; KV resident at their starts 0, 2048, 4096.
    let ms = 3.0 * 10.0 + 0.066 * f64::from(2 * (2048 - 64) + 904 - 64) + 0.08e-3 * f64::from(2048 + 4096);
    let want = (ms * 1000.0) as u64;
    let got = run(&mut e, 2.0);
    assert!(got.len() == 2 && got[0].0.abs_diff(want) <= 1, "{got:?} {want}");
}

#[test]
fn a_new_prompt_waits_for_the_running_step_and_slows_decoding() {
    let mut e = Llm::new(LlmParams::A100_8B, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(64, 100));
    // First prompt: 10 ms. The second arrives at 12 ms inside the step 10 .. 20.005; its step has 1 + 500 tokens.
    run(&mut e, 0.012);
    accept(&mut e, Instant::from_secs_f64(0.012), request(500, 2));
    let got = run(&mut e, 0.1);
    let firsts: Vec<_> = got.iter().filter(|(_, id, _)| *id == 1).collect();
    // Step 2 ends at 10 + 10.00512; step 3 takes 10 + 0.066 * (501 - 64) + 0.08e-3 * 65 = 38.8472 ms.
    assert_eq!(*firsts[0], (20_005 + 38_847, 1, Emitted::Token(1)));
    let decode: Vec<_> = got.iter().filter(|(_, id, _)| *id == 0).map(|(at, ..)| *at).collect();
    assert_eq!(decode[1], 58_852, "the old stream's token comes out of the same step");
}

#[test]
fn the_prefix_cache_saves_compute_but_not_memory() {
    let mut e = Llm::new(LlmParams::A100_8B, Detail::EveryToken);
    let cached = EngineRequest { cached_tokens: 900, ..request(1000, 1) };
    accept(&mut e, Instant::ORIGIN, cached);
    assert!(libm::fabs(e.status_at(Instant::ORIGIN).kv_usage - 1000.0 / 430_000.0) < 1e-12);
    // 10 + 0.066 * (100 - 64) = 12.376 ms.
    assert_eq!(run(&mut e, 1.0)[0].0, 12_376);
}

#[test]
fn the_newest_is_preempted_and_recomputes() {
    let params = LlmParams { kv_tokens: 20, ..LlmParams::A100_8B };
    let mut e = Llm::new(params, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(8, 8));
    accept(&mut e, Instant::ORIGIN, request(8, 8));
    let got = run(&mut e, 1.0);
    assert!(e.preemptions == 1 && e.reserved == 0 && e.running.is_empty() && e.waiting.is_empty());
    let tokens = |id| got.iter().filter(|(_, i, w)| *i == id && matches!(w, Emitted::Token(_))).count();
    assert_eq!((tokens(0), tokens(1)), (8, 8), "no token is lost or sent twice");
    let done = |id| got.iter().find(|(_, i, w)| *i == id && matches!(w, Emitted::Done { .. })).unwrap().0;
    // Alone in step 1, the first has 9 KV tokens in step 2, beside 8 of the second; 10 + 9 in step 3; step 4 would need 21. The second
    // starts over when the first is done, at step 8: one step for its 8 + 2 tokens gives its 3rd, and 5 more follow.
    assert!((80_000..80_100).contains(&done(0)) && (140_000..140_100).contains(&done(1)), "{got:?}");
}

#[test]
fn no_more_than_max_running_and_the_queue_is_bounded() {
    let params = LlmParams { max_running: 2, max_waiting: 1, ..LlmParams::A100_8B };
    let mut e = Llm::new(params, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(10, 5));
    accept(&mut e, Instant::ORIGIN, request(10, 5));
    run(&mut e, 0.0101);
    accept(&mut e, Instant::from_secs_f64(0.0101), request(10, 5));
    assert!(
        matches!(e.arrive(Instant::from_secs_f64(0.0101), &request(10, 5)), Admission::Rejected(_)),
        "2 run, 1 waits"
    );
    run(&mut e, 0.0250);
    let s = e.status_at(Instant::from_secs_f64(0.0250));
    assert_eq!((s.running, s.waiting, s.load), (2, 1, 1.0));
    assert!(matches!(
        e.arrive(Instant::from_secs_f64(0.0250), &request(430_000, 1)),
        Admission::Rejected(Rejection { status: 400, code: "context_length_exceeded", .. })
    ));
}

#[test]
fn cancelling_frees_memory_and_later_steps_are_shorter() {
    let mut e = Llm::new(LlmParams::A100_8B, Detail::EveryToken);
    let a = accept(&mut e, Instant::ORIGIN, request(32, 4));
    let b = accept(&mut e, Instant::ORIGIN, request(32, 4));
    run(&mut e, 0.015);
    assert!(e.cancel(Instant::from_secs_f64(0.015), b) && !e.cancel(Instant::from_secs_f64(0.015), b));
    let got = run(&mut e, 1.0);
    assert!(got.iter().all(|(_, id, _)| *id == a.0));
    assert_eq!((e.reserved, e.next_event_at()), (0, None));
}

#[test]
fn the_cap_stretches_decoding_only() {
    let params = LlmParams { max_tokens_per_s: Some(20.0), ..LlmParams::A100_8B };
    let mut e = Llm::new(params, Detail::EveryToken);
    accept(&mut e, Instant::ORIGIN, request(64, 3));
    let at: Vec<u64> = run(&mut e, 1.0).iter().map(|(at, ..)| *at / 1000).collect();
    assert_eq!(at, [10, 60, 110, 110]);
}

#[test]
fn saturates_at_the_batch_it_can_hold() {
    // Each of 2,560 sequences computes 200 tokens: 33.8 s. About 1,024 steps of a full batch: 10 ms, less the 64 free tokens
    // (4.2 ms), plus 256 * 150 KV tokens (3.1 ms): 9.1 s. Together 42.9 s for 256,000 tokens.
    let mut e = Llm::new(LlmParams::A100_8B, Detail::FirstAndDone);
    for _ in 0..2560 {
        accept(&mut e, Instant::ORIGIN, request(100, 100));
    }
    let mut out = Vec::new();
    e.advance(Instant::from_secs_f64(1000.0), &mut out);
    let end = out.last().unwrap().at.as_secs_f64();
    let rate = 256_000.0 / end;
    assert!((5_650.0..6_270.0).contains(&rate), "{rate} tokens/s");
    assert_eq!(out.len(), 2 * 2560, "first token and end of each");
}
