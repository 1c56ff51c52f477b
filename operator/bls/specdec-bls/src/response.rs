//! Turns parts of answers into the output tensors of responses, with one row for each prompt.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::request::task::Task;
use crate::sequence::part::Part;
use triton::{Tensor, packed};

/// The declared outputs that the client requested. Triton would drop any others, so the BLS does
/// not create them.
pub fn requested_outputs<'a>(
    declared: &BTreeSet<String>,
    requested: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    let requested = requested.into_iter();
    let declared = requested.filter(|name| declared.contains(*name));
    declared.map(str::to_owned).collect()
}

/// Outputs for one part. The text has the shape [1]: one text for each prompt, as the published
/// models return it and their clients read it. Every other output has a leading batch dimension of
/// one.
///
/// `text` is the text of the part, or the whole text so far; `row` is the prompt's index in the
/// request.
pub fn tensors(
    text: &str,
    row: usize,
    task: &Task,
    part: Part,
    outputs: &BTreeSet<String>,
) -> Vec<Tensor> {
    let mut own = vec![
        Tensor::text("text_output", &[1], text),
        Tensor::scalar("batch_index", row as i32),
        Tensor::scalar("sequence_index", 0),
    ];
    if task.log_probs {
        let count = part.log_probs.len() as i64;
        own.push(Tensor::fp32(
            "cum_log_probs",
            &[1, 1],
            &[part.cum_log_prob as f32],
        ));
        own.push(Tensor::fp32(
            "output_log_probs",
            &[1, 1, count],
            &part.log_probs,
        ));
    }
    if task.statistics {
        let rate = match part.drafted {
            0 => 0.0,
            drafted => part.accepted as f64 / drafted as f64,
        };
        own.push(Tensor::fp32("acceptance_rate", &[1, 1], &[rate as f32]));
        own.push(Tensor::scalar(
            "total_accepted_draft_tokens",
            part.accepted as i32,
        ));
        own.push(Tensor::scalar("total_draft_tokens", part.drafted as i32));
        let histogram = match part.histogram.as_slice() {
            [] => &[0],
            bins => bins,
        };
        let shape = [1, histogram.len() as i64];
        own.push(Tensor::int32("acceptance_histogram", &shape, histogram));
    }
    if task.input_count {
        own.push(Tensor::scalar("num_input_tokens", task.prompt.len() as i32));
    }
    if task.output_count {
        own.push(Tensor::scalar("num_output_tokens", part.tokens as i32));
    }
    // The target's outputs include statistics of one call. The BLS's own, which cover the whole
    // answer, replace those of the same name.
    let mut additional = part.outputs;
    additional.retain(|output| own.iter().all(|tensor| tensor.name != output.name));
    own.append(&mut additional);
    own.retain(|output| outputs.contains(output.name.as_ref()));
    own
}

/// Outputs of several prompts as one batch. Shorter and missing rows are padded with zeros.
///
/// # Errors
/// One sentence for outputs of one name that differ in type or rank, that do not have one row each,
/// whose data does not fit their shape, or that are too large for memory together.
pub fn stacked(mut rows: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>, String> {
    if rows.len() == 1 {
        return Ok(rows.pop().unwrap_or_default());
    }
    let mut batch: Vec<Tensor> = Vec::new();
    for first in rows.iter().flatten() {
        if batch.iter().all(|output| output.name != first.name) {
            let same_name = |row: &'_ Vec<Tensor>| row.iter().position(|o| o.name == first.name);
            let outputs = rows.iter();
            let outputs = outputs.map(|row| same_name(row).and_then(|index| row.get(index)));
            batch.push(stack(first, &outputs.collect::<Vec<_>>())?);
        }
    }
    Ok(batch)
}

/// The outputs of one name as one batch. `first` is that of the first row that has this output.
fn stack(first: &Tensor, outputs: &[Option<&Tensor>]) -> Result<Tensor, String> {
    let mut shape = first.shape.clone();
    for output in outputs.iter().flatten() {
        let fits = output.kind == first.kind && output.shape.len() == shape.len();
        if !fits || output.shape.first() != Some(&1) {
            return Err(format!(
                "output {} is {:?} {:?} for one prompt and {:?} {:?} for another",
                output.name, first.kind, first.shape, output.kind, output.shape
            ));
        }
        for (size, own) in shape.iter_mut().zip(&output.shape) {
            *size = (*size).max(*own);
        }
    }
    let row_shape = shape.split_off(1);
    let data = match first.kind.width() {
        Some(width) => padded(&row_shape, outputs, width, 0, |o| Cow::from(&o.data))?,
        None => {
            let empty: &[u8] = &[];
            packed(&padded(&row_shape, outputs, 1, empty, |output| {
                Cow::from(output.strings())
            })?)
        }
    };
    let shape = [&[outputs.len() as i64], row_shape.as_slice()].concat();
    Ok(Tensor::new(first.name.clone(), first.kind, &shape, data))
}

/// The values of all rows in order, each row padded to `shape`.
///
/// An element has `unit` values: the bytes of a number, or one string.
fn padded<'a, T: Copy + 'a>(
    shape: &[i64],
    outputs: &[Option<&'a Tensor>],
    unit: usize,
    padding: T,
    read: impl Fn(&'a Tensor) -> Cow<'a, [T]>,
) -> Result<Vec<T>, String> {
    let block = sizes(shape, unit);
    let per_row = product(&block);
    let all = per_row.and_then(|per_row| per_row.checked_mul(outputs.len()));
    let (Some(per_row), Some(all)) = (per_row, all) else {
        return Err(format!(
            "outputs of the shape {shape:?} are more than fit in memory"
        ));
    };
    let mut data = vec![padding; all];
    let rows = data.chunks_exact_mut(per_row.max(1));
    for (row, output) in rows.zip(outputs) {
        let Some(output) = output else { continue };
        let own = sizes(output.shape.get(1..).unwrap_or_default(), unit);
        let values = read(output);
        if product(&own) != Some(values.len()) {
            return Err(format!(
                "output {} has {} bytes, which is not what its shape {:?} needs",
                output.name,
                output.data.len(),
                output.shape
            ));
        }
        copy_block(&values, &own, row, &block);
    }
    Ok(data)
}

fn sizes(shape: &[i64], unit: usize) -> Vec<usize> {
    let sizes = shape.iter().map(|size| usize::try_from(*size).unwrap_or(0));
    sizes.chain([unit]).collect()
}

fn product(sizes: &[usize]) -> Option<usize> {
    let mut sizes = sizes.iter();
    sizes.try_fold(1_usize, |all, size| all.checked_mul(*size))
}

/// Copy a block of the shape `own` into a block of the shape `block`, which is at least as large in
/// every dimension. Every dimension is filled from its start, and the other values of the larger
/// block stay.
fn copy_block<T: Copy>(from: &[T], own: &[usize], to: &mut [T], block: &[usize]) {
    match (own, block) {
        ([count, own @ ..], [most, block @ ..]) if !own.is_empty() => {
            let step = from.len().checked_div(*count).unwrap_or(0).max(1);
            let stride = to.len().checked_div(*most).unwrap_or(0).max(1);
            for (from, to) in from.chunks_exact(step).zip(to.chunks_exact_mut(stride)) {
                copy_block(from, own, to, block);
            }
        }
        _ => to.iter_mut().zip(from).for_each(|(to, from)| *to = *from),
    }
}
