//! The table as the server describes it: the columns that rows fill, and the statements for it.

use highwater_engine::eq_ignore_case;
use tokio_postgres::Client;

use super::super::FINAL_COLUMN;
use super::PostgresOutput;
use super::error::Failure;
use crate::rows::RowNames;

/// The writable columns of a table: name, quoted name, type, element type of an array, and the quoted name of the
/// table.
const COLUMNS: &str = "
    SELECT a.attname::text, format('%I', a.attname), t.typname::text, e.typname::text,
           format('%I.%I', n.nspname, c.relname)
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum";

/// Holds rows with a key until they are merged.
const TEMPORARY: &str = "pg_temp.highwater_rows";

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    copy: String,
    temporary: Option<String>,
    merge: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The name in the rows.
    pub name: String,
    /// Quoted for SQL.
    quoted: String,
    pub kind: Kind,
    pub is_array: bool,
    pub is_key: bool,
}

/// The text form of a value or of an array element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Integer,
    /// Floats and decimals.
    Number,
    /// Any type that reads text: texts, times, JSON, and extension types.
    Text,
}

impl Kind {
    /// By the name of the type.
    fn of(name: &str) -> Kind {
        match name {
            "bool" => Kind::Bool,
            "int2" | "int4" | "int8" => Kind::Integer,
            "float4" | "float8" | "numeric" => Kind::Number,
            _ => Kind::Text,
        }
    }
}

impl Table {
    pub(super) async fn find(
        client: &Client,
        output: &PostgresOutput,
        names: &RowNames,
        early_key: Option<&[String]>,
    ) -> Result<Table, Failure> {
        let rows = client.query(COLUMNS, &[&output.table]).await?;
        let Some(first) = rows.first() else {
            return Err(Failure::Unfit(format!(
                "there is no table `{}` that this user can see",
                output.table
            )));
        };
        let table: String = first.get(4);
        let there = rows.iter().map(|row| {
            let element: Option<&str> = row.get(3);
            Column {
                name: row.get(0),
                quoted: row.get(1),
                kind: Kind::of(element.unwrap_or(row.get(2))),
                is_array: element.is_some(),
                is_key: false,
            }
        });
        let mut columns = choose(there.collect(), names, &output.table)?;
        let key = match (&output.key[..], early_key) {
            ([], Some([])) => {
                return Err(Failure::Unfit(
                    "early results replace each other by a key, and these rows have none: set `key`"
                        .into(),
                ));
            }
            ([], Some(columns)) => columns,
            (columns, _) => columns,
        };
        for key in key {
            let column = columns.iter_mut().find(|column| column.name == *key);
            let column = column.ok_or_else(|| {
                Failure::Unfit(format!("the key `{key}` is not a column of the output"))
            })?;
            column.is_key = true;
        }
        Ok(Table::with(&table, columns, early_key.is_some()))
    }

    /// `has_revisions`: rows are sent before they are final, and may be withdrawn.
    fn with(table: &str, columns: Vec<Column>, has_revisions: bool) -> Table {
        let list = |columns: &mut dyn Iterator<Item = &Column>| -> String {
            let quoted: Vec<&str> = columns.map(|column| &column.quoted[..]).collect();
            quoted.join(", ")
        };
        let all = list(&mut columns.iter());
        let keys = list(&mut columns.iter().filter(|column| column.is_key));
        if keys.is_empty() {
            return Table {
                copy: format!("COPY {table} ({all}) FROM STDIN"),
                temporary: None,
                merge: None,
                columns,
            };
        }
        let others = columns.iter().filter(|column| !column.is_key);
        let sets: Vec<String> = others
            .map(|Column { quoted, .. }| format!("{quoted} = excluded.{quoted}"))
            .collect();
        let resolve = match sets.is_empty() {
            true => "NOTHING".into(),
            false => format!("UPDATE SET {}", sets.join(", ")),
        };
        // The last row of each key counts.
        let last = format!(
            "SELECT DISTINCT ON ({keys}) * FROM {TEMPORARY} ORDER BY {keys}, highwater_row DESC"
        );
        let finality = columns.iter().find(|column| column.name == FINAL_COLUMN);
        let finality = finality.filter(|_| has_revisions);
        let (kept, withdraw) = match finality {
            None => (String::new(), String::new()),
            Some(Column { quoted, .. }) => {
                let same = columns.iter().filter(|column| column.is_key);
                let same = same.map(|key| format!("stored.{0} = last.{0}", key.quoted));
                let same: Vec<String> = same.collect();
                (
                    format!("WHERE {quoted} IS NOT NULL"),
                    format!(
                        "DELETE FROM {table} AS stored USING ({last}) AS last
                         WHERE last.{quoted} IS NULL AND {};",
                        same.join(" AND ")
                    ),
                )
            }
        };
        Table {
            copy: format!("COPY {TEMPORARY} (highwater_row, {all}) FROM STDIN"),
            temporary: Some(format!(
                "CREATE TEMP TABLE highwater_rows ON COMMIT DELETE ROWS AS
                 SELECT 0::bigint AS highwater_row, {all} FROM {table} WITH NO DATA"
            )),
            merge: Some(format!(
                "INSERT INTO {table} ({all}) SELECT {all} FROM ({last}) AS last {kept}
                 ORDER BY highwater_row ON CONFLICT ({keys}) DO {resolve};
                 {withdraw} DELETE FROM {TEMPORARY}"
            )),
            columns,
        }
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Whether a line starts with the number of its row.
    pub(super) fn is_numbered(&self) -> bool {
        self.merge.is_some()
    }

    pub(super) fn copy(&self) -> &str {
        &self.copy
    }

    pub(super) fn temporary(&self) -> Option<String> {
        self.temporary.clone()
    }

    pub(super) fn merge(&self) -> Option<&str> {
        self.merge.as_deref()
    }
}

/// The columns that rows fill. A column that the query names must exist, by its exact name or else ignoring case; a `*`
/// stores the fields that have a column.
fn choose(there: Vec<Column>, names: &RowNames, table: &str) -> Result<Vec<Column>, Failure> {
    let (known, open) = names.known();
    let mut chosen: Vec<Column> = Vec::new();
    for name in known {
        let exact = there.iter().find(|column| column.name == name);
        let similar = || {
            there
                .iter()
                .find(|column| eq_ignore_case(&column.name, name))
        };
        let column = exact.or_else(similar).ok_or_else(|| {
            let names: Vec<&str> = there.iter().map(|column| &column.name[..]).collect();
            Failure::Unfit(format!(
                "table `{table}` has no column `{name}`; it has {}",
                names.join(", ")
            ))
        })?;
        if chosen.iter().all(|other| other.quoted != column.quoted) {
            chosen.push(Column {
                name: name.into(),
                ..column.clone()
            });
        }
    }
    if open {
        let unnamed = there
            .iter()
            .filter(|column| chosen.iter().all(|other| other.quoted != column.quoted));
        let unnamed: Vec<Column> = unnamed.cloned().collect();
        chosen.extend(unnamed);
    }
    match chosen.is_empty() {
        true => Err(Failure::Unfit("the output has no columns".into())),
        false => Ok(chosen),
    }
}
