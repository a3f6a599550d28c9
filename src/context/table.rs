//! The name of the lock table.

use std::fmt;

use crate::error::{Error, Result, Setting};

/// PostgreSQL cuts longer identifiers off, silently.
const LONGEST_IDENTIFIER: usize = 63;

/// A table's name as it stands in SQL, quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    sql: String,
    plain: String,
}

/// A name as an identifier in SQL, quoted.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl TableName {
    pub(super) fn parse(name: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::setting(
                Setting::Table,
                name,
                format!("{why}; allowed is `table` or `schema.table`"),
            )
        };
        let parts: Vec<&str> = name.split('.').collect();
        if parts.len() > 2 {
            return Err(refuse("has more than two parts"));
        }
        if parts.iter().any(|part| part.trim().is_empty()) {
            return Err(refuse("has an empty part"));
        }
        if name.contains('\0') {
            return Err(refuse("contains a NUL character"));
        }
        if parts.iter().any(|part| part.len() > LONGEST_IDENTIFIER) {
            return Err(refuse("has a part of more than 63 bytes"));
        }
        let quoted: Vec<String> = parts.iter().map(|part| identifier(part)).collect();
        Ok(Self {
            sql: quoted.join("."),
            plain: name.to_owned(),
        })
    }

    /// Quoted, to be put into a statement.
    pub(crate) fn sql(&self) -> &str {
        &self.sql
    }

    /// The schema, if one was named.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn schema(&self) -> Option<&str> {
        self.plain.split_once('.').map(|(schema, _)| schema)
    }

    /// Without the schema.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn name(&self) -> &str {
        self.plain
            .split_once('.')
            .map_or(&*self.plain, |(_, name)| name)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
}
