//! The first argument, the variable that it names, and the URL in there.

use super::*;

fn url_refused(word: &str, env: &[(&str, &str)]) -> String {
    let args = Args::try_parse_from(["dislock", word, "ls"]).unwrap();
    let env: Vec<_> = env
        .iter()
        .map(|(n, v)| ((*n).to_owned(), OsString::from(v)))
        .collect();
    resolve(&args, &|name| lookup(&env, name))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_url_variable_that_is_not_set_or_empty_is_refused_by_name() {
    let message = url_refused("NO_SUCH_URL", &[]);
    assert!(
        message.starts_with("NO_SUCH_URL: is not set; "),
        "{message}"
    );
    for empty in ["", "  "] {
        let message = url_refused("DB", &[("DB", empty)]);
        assert!(message.starts_with("DB: is empty; "), "{message}");
    }
}

#[test]
fn a_word_that_cannot_be_a_name_is_not_echoed() {
    for word in [
        URL,
        "host=localhost password=hunter2",
        "hunter2@localhost",
        "user:hunter2",
        "",
    ] {
        let message = url_refused(word, &[]);
        assert!(
            message.starts_with("URL_ENV_NAME: must be the NAME"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_url_variable_with_an_unusual_name_is_read() {
    let args = Args::try_parse_from(["dislock", "db.url", "ls"]).unwrap();
    let mut env = base();
    env.push(("db.url".to_owned(), URL.into()));
    assert!(resolve(&args, &|name| lookup(&env, name)).is_ok());
}

#[test]
fn a_url_that_is_not_utf8_is_refused_without_its_bytes() {
    let mut env = base();
    let url = OsString::from_vec(b"postgres://u:hunter2\xff@h/d".to_vec());
    env.push(("DATABASE_URL".to_owned(), url));
    let bad = resolve(&args(&[]), &|name| lookup(&env, name)).unwrap_err();
    assert_eq!(
        bad.to_string(),
        "DATABASE_URL: is not valid UTF-8; must be the database URL"
    );
}

#[test]
fn a_malformed_url_is_refused_by_the_variable_s_name_without_its_text() {
    let message = refused(
        &[],
        &[("DATABASE_URL", "postgres://u:hunter2@h:notaport/d")],
    );
    assert!(message.starts_with("DATABASE_URL: "), "{message}");
}

#[test]
fn a_url_given_for_another_setting_is_not_echoed() {
    for (option, value) in [
        ("--strategy", URL),
        ("--kill-grace", URL),
        ("--table", "a.b.postgres://u:hunter2@h"),
        ("--jitter", "host=h password=hunter2"),
    ] {
        let message = refused(&[option, value], &[]);
        assert!(
            message.starts_with(option) && message.contains("\"…\""),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}
