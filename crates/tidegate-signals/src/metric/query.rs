//! The answer of a Prometheus server to an instant query: a scalar, or a vector of one sample.

use super::reading::Unread;
use crate::miss::Miss;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Answer {
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

/// The number in an answer, or why there is none in a good one.
///
/// # Errors
/// If it is no answer, or says that the query failed.
pub(super) fn read(body: &[u8]) -> Result<Result<f64, Unread>, Miss> {
    let answer: Answer = serde_json::from_slice(body).map_err(Miss::NotJson)?;
    let Some(data) = answer.data else {
        return Err(Miss::Refused(answer.error.unwrap_or_else(|| "an answer without data".to_owned())));
    };
    let value = |sample: &Value| sample.get(1).and_then(Value::as_str).and_then(|text| text.parse::<f64>().ok());
    let wrong = || Miss::Refused(format!("a result of type {} that cannot be read", data.result_type));
    match (data.result_type.as_str(), &data.result) {
        ("scalar", sample) => value(sample).map(Ok).ok_or_else(wrong),
        ("vector", Value::Array(series)) => match series.as_slice() {
            [] => Ok(Err(Unread::NoSeries)),
            [only] => only.get("value").and_then(value).map(Ok).ok_or_else(wrong),
            several => Ok(Err(Unread::Ambiguous(several.len()))),
        },
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_and_vectors_of_one_are_numbers() {
        for (result, expected) in [
            (r#"{"resultType":"scalar","result":[1700000000.1,"0.75"]}"#, Ok(0.75)),
            (r#"{"resultType":"vector","result":[{"metric":{},"value":[17,"3"]}]}"#, Ok(3.0)),
            (r#"{"resultType":"vector","result":[]}"#, Err(Unread::NoSeries)),
            (r#"{"resultType":"vector","result":[{"value":[1,"3"]},{"value":[1,"4"]}]}"#, Err(Unread::Ambiguous(2))),
        ] {
            let body = format!("{{\"status\":\"success\",\"data\":{result}}}");
            assert_eq!(read(body.as_bytes()).unwrap(), expected, "{body}");
        }
        let nan = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}"#;
        assert!(read(nan).unwrap().unwrap().is_nan());
    }

    #[test]
    fn what_is_no_answer_says_why() {
        for (body, why) in [
            (r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#, "the server says: parse error"),
            (r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#, "type matrix"),
            ("<html>", "not the JSON"),
        ] {
            assert!(read(body.as_bytes()).unwrap_err().to_string().contains(why), "{body}");
        }
    }
}
