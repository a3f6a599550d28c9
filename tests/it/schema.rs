//! `schema.sql`, which users apply by hand.

use crate::support::database::{Database, SCHEMA};

#[test]
fn applied_twice_it_changes_nothing() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "host:1", 60.0);

    database.sql(SCHEMA);

    assert_eq!(database.rows(), 1);
}

#[test]
fn it_makes_the_three_columns_of_the_contract() {
    let columns = Database::new().sql(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns \
         WHERE table_name = 'key_value' ORDER BY ordinal_position",
    );

    let columns: Vec<String> = columns
        .into_iter()
        .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        columns,
        [
            "key text NO",
            "value text NO",
            "expire_at timestamp with time zone NO"
        ]
    );
}
