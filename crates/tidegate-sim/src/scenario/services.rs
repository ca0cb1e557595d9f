//! `fleet[].embedding`, `vector` and `cpu`: engines that are no language models.

use tidegate_config::{Absent, Key, Kind, Reader, Section, Table};

use super::key::{count, or, time};
use crate::engine::cpu::CpuParams;
use crate::engine::embedding::EmbeddingParams;
use crate::engine::vector::VectorParams;

/// Seconds of a time that a request takes.
const SHORT: (f64, f64) = (0.0, 3600.0);
const MAX_WAITING: Key = Key {
    name: "max_waiting",
    kind: Kind::Integer { min: 0, max: 10_000_000, word: None },
    absent: Absent::Default("100_000"),
    summary: "Requests that may wait before 503.",
    example: "1000",
};

fn number(r: &mut Reader<'_, '_>, name: &str) -> u32 {
    u32::try_from(r.integer(name)).unwrap_or(u32::MAX)
}

pub(super) struct Embedding(pub(super) EmbeddingParams);

impl Section for Embedding {
    const TABLE: &'static Table = &Table {
        place: "fleet[].embedding",
        summary: "A batch begins when its oldest request has waited for `window` or `max_batch` are there, never while another is computed, and \
                  takes per_batch + per_item n + per_token (prompt tokens).",
        keys: &[
            time("window", SHORT, or("5ms"), "How long a batch is collected."),
            count("max_batch", 100_000, or("32"), "Most requests of a batch."),
            time("per_batch", SHORT, or("4ms"), "Time of a batch, however small."),
            time("per_item", SHORT, or("500us"), "Time per request of a batch."),
            time("per_token", SHORT, or("5us"), "Time per prompt token of a batch."),
            MAX_WAITING,
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(EmbeddingParams {
            window_s: r.duration("window").as_secs_f64(),
            max_batch: number(r, "max_batch"),
            per_batch_s: r.duration("per_batch").as_secs_f64(),
            per_item_s: r.duration("per_item").as_secs_f64(),
            per_token_s: r.duration("per_token").as_secs_f64(),
            max_waiting: number(r, "max_waiting"),
        })
    }
}

pub(super) struct Vector(pub(super) VectorParams);

impl Section for Vector {
    const TABLE: &'static Table = &Table {
        place: "fleet[].vector",
        summary: "A search takes base + per_level log2(vectors), one whose answer is cached takes `hit`.",
        keys: &[
            count("vectors", 1_000_000_000_000, or("1_000_000"), "Vectors in the index."),
            time("base", SHORT, or("1ms"), "Time of a search besides its descent."),
            time("per_level", SHORT, or("300us"), "Time per doubling of the index."),
            Key {
                name: "hit_rate",
                kind: Kind::Fraction { min: 0.0, max: 1.0, word: None },
                absent: Absent::Default("0"),
                summary: "Share of the searches whose answer is cached.",
                example: "30%",
            },
            time("hit", SHORT, or("200us"), "Time of a search whose answer is cached."),
            Key {
                name: "cache",
                kind: Kind::Integer { min: 0, max: 10_000_000, word: None },
                absent: Absent::Default("0"),
                summary: "Queries whose answers are kept, the most recently asked ones, where the workload has `queries`; `hit_rate` then counts for \
                          nothing.",
                example: "10_000",
            },
            count("threads", 100_000, or("8"), "Searches at a time."),
            MAX_WAITING,
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(VectorParams {
            vectors: r.integer("vectors"),
            base_s: r.duration("base").as_secs_f64(),
            per_level_s: r.duration("per_level").as_secs_f64(),
            hit_rate: r.number("hit_rate"),
            hit_s: r.duration("hit").as_secs_f64(),
            cache: number(r, "cache"),
            threads: number(r, "threads"),
            max_waiting: number(r, "max_waiting"),
        })
    }
}

pub(super) struct Cpu(pub(super) CpuParams);

impl Section for Cpu {
    const TABLE: &'static Table = &Table {
        place: "fleet[].cpu",
        summary: "Cores shared by all requests: n of them on c cores each run at min(1, c/n) of a core. A request needs work + per_token (prompt \
                  and answer tokens) of core time.",
        keys: &[
            count("cores", 100_000, or("8"), "Cores."),
            time("work", SHORT, or("50ms"), "Core time of a request."),
            time("per_token", SHORT, or("0ms"), "Core time per token of prompt and answer."),
            count("max_running", 1_000_000, or("256"), "Requests computed at a time; others wait."),
            MAX_WAITING,
        ],
    };

    fn read(r: &mut Reader<'_, '_>) -> Self {
        Self(CpuParams {
            cores: number(r, "cores"),
            base_s: r.duration("work").as_secs_f64(),
            per_token_s: r.duration("per_token").as_secs_f64(),
            max_running: number(r, "max_running"),
            max_waiting: number(r, "max_waiting"),
        })
    }
}
