//! The same properties on stable Rust, with inputs that are nearly right more often than not.

use proptest::prelude::*;

use super::SEPARATOR;

fn input(texts: &[String]) -> Vec<u8> {
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    texts.join(&SEPARATOR)
}

/// Words of connection strings, and what stands between them.
fn conninfo_text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(
        &[
            "host",
            "hostaddr",
            "port",
            "user",
            "password",
            "dbname",
            "sslmode",
            "options",
            "connect_timeout",
            "requiressl",
            "ssl",
            "target_session_attrs",
            "127.0.0.1",
            "::1",
            "5432",
            "0",
            "verify-full",
            "true",
            "1",
            "a",
            "ä",
            "%41",
            "%00",
            "%",
            "/run",
            "@x",
        ][..],
    );
    let between = prop::sample::select(
        &[
            "=", "=", " ", "&", "?", ":", "@", "/", ",", "'", "\\", "[", "]", "", " = ",
        ][..],
    );
    let start =
        prop::sample::select(&["", "", "postgresql://", "postgres://", "postgresql://u:p@"][..]);
    let parts = prop::collection::vec((word, between), 0..10);
    (start, parts).prop_map(|(start, parts)| {
        let parts = parts
            .into_iter()
            .flat_map(|(word, between)| [word, between]);
        std::iter::once(start).chain(parts).collect()
    })
}

/// Pairs, most of which are right.
fn pairs() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(
        &[
            "host",
            "port",
            "user",
            "password",
            "dbname",
            "application_name",
            "sslrootcert",
        ][..],
    );
    let pair = (keyword, "[ -~é]{0,6}");
    prop::collection::vec(pair, 0..5).prop_map(|pairs| {
        let quoted = crate::db::conninfo::properties::quoted;
        let pairs = pairs
            .iter()
            .map(|(keyword, value)| format!("{keyword}={} ", quoted(value)));
        pairs.collect()
    })
}

fn variable(
    names: &'static [&'static str],
    values: &'static [&'static str],
) -> BoxedStrategy<String> {
    let value = prop_oneof![
        3 => prop::sample::select(values).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ];
    (prop::sample::select(names), value)
        .prop_map(|(name, value)| format!("{name}={value}"))
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conninfo(
        string in prop_oneof![conninfo_text(), pairs()],
        variables in prop::collection::vec(variable(
            &["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGSSLMODE", "PGTZ", "PGREQUIREAUTH"],
            &["a,b", "5432", "1,2", "", "require", "/run", "@x", "none,md5", "UTC"],
        ), 0..4),
    ) {
        let texts: Vec<String> = std::iter::once(string).chain(variables).collect();
        super::conninfo(&input(&texts));
    }

    #[test]
    fn passfile(
        entry in prop::collection::vec("[a:#\\\\*.\r ]{0,4}", 4),
        content in "([a*#]{0,1}[:\\\\]{0,2}(5432)?|\n|\r){0,16}",
    ) {
        let mut texts = entry;
        texts.push(content);
        super::passfile(&input(&texts));
    }

    #[test]
    fn service(
        name in "[a-b\\] ]{0,3}",
        string in pairs(),
        content in "(\\[[a-b]{0,2}\\]?|host=|user=x|service=|ldap://|#|[ -~]{0,3}|\n){0,12}",
    ) {
        super::service(&input(&[name, string, content]));
    }

    #[test]
    fn crontab(
        fields in prop::collection::vec(
            "\\*|\\*/[0-9]|[0-9]{1,2}(-[0-9]{1,2})?(/[0-9])?|[a-zA-Z]{3}|L|[0-7]#[1-5]|[0-9],[0-9]", 5
        ),
        blank in "[ \t]{1,2}",
    ) {
        super::crontab(fields.join(&*blank).as_bytes());
    }

    #[cfg(all(feature = "cli", target_os = "linux"))]
    #[test]
    fn settings(
        variables in prop::collection::vec(variable(
            &[
                "LOCK_KEY", "CRON_SCHEDULE", "LOCK_STRATEGY", "LOCK_TABLE", "RUN_LOCK_TTL_SECONDS",
                "LOCK_LEASE_INTERVAL", "LOCK_JITTER_SECONDS", "LOCK_KILL_GRACE_SECONDS", "--ttl",
                "LOCK_TIMEZONE", "LOCK_WAIT_SECONDS", "LOCK_CONFLICT_EXIT_CODE", "--key", "--strategy",
                "CRONJOB_LOCK_LOG_LEVEL", "LOCK_ON_LEASE_LOSS", "LOCK_OWNER", "--lease-interval",
            ],
            &[
                "job", "* * * * *", "schedule", "lease", "schedule,lease", "1", "0", "60", "1e9", "1e-7",
                "-1", "nan", "forever", "UTC", "75", "256", "a.b", "\"x\"", "debug", "continue", "",
            ],
        ), 0..10),
    ) {
        let mut texts = vec!["LOCK_KEY=job".to_owned(), "CRON_SCHEDULE=@daily".to_owned()];
        texts.extend(variables);
        super::settings(&input(&texts));
    }

    #[test]
    fn redaction(
        before in "([a-z0-9]|[@/:?#% '=&,\\[\\\\]|%[0-9]{0,2}|\\PC){0,6}",
        after in "([a-z0-9]|[@/:?#% '=&,\\[\\\\]|%[0-9]{0,2}|\\PC){0,6}",
        tail in "([?& ](sslmode|port|nonsense|connect_timeout)=?x?|[@/:?#% '=&,\\[\\\\]){0,3}",
    ) {
        super::redaction(&input(&[before, after, tail]));
    }
}
