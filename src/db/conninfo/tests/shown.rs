//! What is shown of strings that people got wrong and libpq takes: no more than plain names.

use super::*;

/// What a string says of itself, as a target or as an error.
fn said(string: &str, variables: &[(&str, &str)]) -> String {
    match resolve(string, variables) {
        Ok(target) => format!("{target:?} {:?} {:?}", target.hosts, target.require_peer),
        Err(error) => format!("{error} {error:?}"),
    }
}

#[test]
fn a_host_that_cannot_be_one_is_refused_and_not_shown() {
    for string in [
        "host=127.0.0.1;port=1;user=app;password=hunter2",
        "host=h,port=1,user=app,password=hunter2",
        "host=h;hunter2",
        "host=h&password=hunter2",
        "host=h|password=hunter2",
        "host=h:1;password=hunter2",
        "host=h:hunter2",
        "host='h hunter2'",
        "host=h/hunter2",
        "host=/tmp;password=hunter2",
        "host=/tmp,password=hunter2",
        "host=@/tmp|hunter2",
        "host=h;password=hunter2 hostaddr=127.0.0.1",
        "postgresql://h;hunter2/d",
        "postgresql://h&user=app&password=hunter2",
        "postgresql://h?host=h:hunter2",
        "postgresql://[::1;hunter2]/d",
    ] {
        let refused = refusal(string);
        let names_option = refused.starts_with("host is neither a host name nor");
        assert!(names_option && !refused.contains("hunter2"), "{refused}");
    }
    for host in ["app:hunter2@h", "h;password=hunter2"] {
        let refused = resolve("", &[("PGHOST", host)]).unwrap_err().to_string();
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    let refused = resolve("", &[("PGHOST", "h:1")]).unwrap_err().to_string();
    assert!(refused.starts_with("PGHOST is neither"), "{refused}");
}

#[test]
fn hosts_of_every_form_are_taken_and_shown() {
    let hosts = [
        ("bücher.example", "bücher.example:5432"),
        ("my_host-1.", "my_host-1.:5432"),
        ("10.0.0.1", "10.0.0.1:5432"),
        ("::1", "[::1]:5432"),
        ("fe80::1%eth0", "[fe80::1%eth0]:5432"),
        ("/cloudsql/p:r:i", "/cloudsql/p:r:i:5432"),
        ("@/abstract", "@/abstract:5432"),
    ];
    for (host, shown) in hosts {
        let target = resolved(&format!("host={host}"), &[]);
        assert_eq!(target.hosts[0].to_string(), shown);
    }
    // It may be meant, but nobody can tell it from credentials.
    let target = resolved("host=//app:hunter2@h/d", &[]);
    assert_eq!(target.hosts[0].to_string(), "…:5432");
}

/// After a password with a blank in it.
#[test]
fn a_word_that_is_taken_for_an_option_is_not_shown_where_it_may_belong_to_a_password() {
    for string in [
        "password=two hunter=2",
        "user=me;password=two hunter=2",
        "sslpassword=two hunter=2",
    ] {
        let refused = refusal(string);
        assert!(!refused.contains("hunter"), "{refused}");
    }
    let refused = refusal("password=p host=h hunter=2");
    assert!(refused.ends_with("unknown option, hunter"), "{refused}");
}

/// To libpq a name may be anything, and so it may be for us.
#[test]
fn a_name_that_is_not_plain_is_used_and_not_shown() {
    for string in [
        "user=app;password=hunter2",
        "user=app&password=hunter2",
        "user=app,password=hunter2",
        "user='app password=hunter2'",
        "user=app:hunter2",
        "user=u dbname=x,password=hunter2",
        "dbname=d;user=app;password=hunter2 user=u host=h",
        "user=u requirepeer=postgres;password=hunter2",
        "postgresql://app%3Ahunter2@h/db",
        "postgresql://?user=app:hunter2",
        "postgresql://?user=app/hunter2",
        "postgresql://app;hunter2@h",
        "postgresql://app,hunter2@h",
        "postgresql://u@h/d&password%3Dhunter2",
        "user=u host=//app:hunter2@h/d",
    ] {
        resolved(string, &[]);
        let said = said(string, &[]);
        assert!(said.contains('…') && !said.contains("hunter2"), "{said}");
    }
    let target = resolved("user=app;x=1 dbname='my db'", &[]);
    assert_eq!((&*target.user, &*target.dbname), ("app;x=1", "my db"));
    let target = resolved("user=app@corp dbname=app_1", &[("PGHOST", "h")]);
    assert_eq!(target.describe(), "h:5432/app_1 as app@corp");
}

#[test]
fn a_url_in_a_variable_that_is_for_something_else_is_not_shown() {
    let url = "postgresql://app:hunter2@h/d";
    for variable in [
        "PGUSER",
        "PGDATABASE",
        "PGHOST",
        "PGHOSTADDR",
        "PGPORT",
        "PGSERVICE",
        "PGSERVICEFILE",
        "PGREQUIREPEER",
        "PGSSLMODE",
        "PGREQUIREAUTH",
    ] {
        let service = [(variable, url), ("PGSERVICE", "s")];
        for variables in [&service[..1], &service] {
            let said = said("", variables);
            assert!(!said.contains("hunter2"), "{variable}: {said}");
        }
    }
    let refused = refusal("service=x;password=hunter2");
    assert!(refused.starts_with("service \"…\" is not"), "{refused}");
}
