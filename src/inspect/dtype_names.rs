//! DtypeNames: exact types of tensors. What is stored tells widths and floats apart; whether integers have a sign or are
//! truths, whether floats are halves of complex numbers, and which 8-bit float it is, stands in the file alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use crate::error::Result;
use crate::format::array::list;
use crate::format::{Dtype, Listed, ReadAt, Tensor};
use crate::repo::recipe::ContentReference;
use crate::repo::stored_file::{SharedReader, StoredFile, unwrapped};

/// Names of the types of a file's tensors.
#[derive(Debug, Default)]
pub struct DtypeNames {
    /// By offset, those only that are called otherwise than what they are stored as.
    others: HashMap<u64, (Dtype, Cow<'static, str>)>,
}

impl DtypeNames {
    /// Those in the first `len` bytes of `source`.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(source: &dyn ReadAt, len: u64) -> io::Result<Self> {
        let mut others = HashMap::new();
        list(source, len, &mut |listed| {
            if let Listed::Array(array) = listed
                && array.value.name != array.value.dtype.name()
            {
                others.entry(array.offset).or_insert((array.value.dtype, array.value.name));
            }
        })?;
        Ok(DtypeNames { others })
    }

    /// What the type of a tensor is called.
    pub fn of(&self, tensor: &Tensor) -> Cow<'static, str> {
        let other = self.others.get(&tensor.offset).filter(|other| other.0 == tensor.dtype);
        other.map_or(Cow::Borrowed(tensor.dtype.name()), |other| other.1.clone())
    }
}

/// What the type that most tensors of a model's files are stored as is called in them: that of most bytes. Files that
/// cannot be read say nothing.
///
/// # Errors
/// Those of reading that are no damage.
pub fn main_dtype_name(
    reader: &SharedReader,
    files: &[(&Path, ContentReference, u64)],
    dtype: Dtype,
) -> Result<Cow<'static, str>> {
    let is_open = matches!(dtype, Dtype::Int64 | Dtype::Int32 | Dtype::Int16 | Dtype::Int8 | Dtype::Float8);
    let mut totals: BTreeMap<Cow<'static, str>, u64> = BTreeMap::new();
    for (path, content, size) in files.iter().filter(|_| is_open) {
        let listed = StoredFile::open(reader.clone(), Some(*content), *size).and_then(|file| {
            let mut own: BTreeMap<Cow<'static, str>, u64> = BTreeMap::new();
            list(&file, *size, &mut |listed| {
                if let Listed::Array(array) = listed
                    && array.value.dtype == dtype
                {
                    let total = own.entry(array.value.name).or_default();
                    *total = total.saturating_add(array.len);
                }
            })
            .map_err(|error| unwrapped(error, path))?;
            Ok(own)
        });
        match listed {
            Ok(own) => own.into_iter().for_each(|(name, bytes)| {
                let total = totals.entry(name).or_default();
                *total = total.saturating_add(bytes);
            }),
            Err(error) if error.is_unreadable() => {
                tracing::warn!("cannot tell the types in {}: {error}", path.display());
            }
            Err(error) => return Err(error),
        }
    }
    let most = totals.into_iter().max_by_key(|total| total.1);
    Ok(most.map_or(Cow::Borrowed(dtype.name()), |most| most.0))
}
