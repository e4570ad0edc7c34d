//! Users and groups, as `/etc/passwd` and `/etc/group` have them (passwd(5), group(5)).
//!
//! They are not read by the C library, which in a static program loads modules of another C library, and aborts. Users
//! of a directory service are known by number only.

use std::path::PathBuf;

use super::Host;
use super::file;
use crate::error::Error;

/// The user and groups that a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its supplementary groups, `gid` among them.
    pub(crate) groups: Vec<u32>,
    /// Its entry in `/etc/passwd`, if it has one.
    pub(crate) entry: Option<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// The fields of the first line whose field `at` is `value`.
fn find<'a>(table: &'a str, at: usize, value: &str) -> Option<Vec<&'a str>> {
    let lines = table.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.into_iter().find(|fields| fields.get(at) == Some(&value))
}

/// A name, or a number that need not be in the table.
fn by_name_or_number<'a>(table: &'a str, text: &str) -> Option<(u32, Option<Vec<&'a str>>)> {
    const NAME: usize = 0;
    const NUMBER: usize = 2;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fields = find(table, NAME, text).or_else(|| find(table, NUMBER, text).filter(|_| is_number));
    // For the system calls the greatest number means "do not change it".
    let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
    match fields {
        Some(fields) => Some((number(fields.get(NUMBER)?)?, Some(fields))),
        None => Some((number(text).filter(|_| is_number)?, None)),
    }
}

/// The groups that name the user as a member.
fn groups_of(groups: &str, name: &str) -> Vec<u32> {
    let gid = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_member = fields.get(3)?.split(',').any(|member| member == name);
        fields.get(2)?.parse().ok().filter(|_| is_member)
    };
    groups.lines().filter_map(gid).collect()
}

/// Parses `NAME` or `NAME:GROUP`, where each can be a number.
fn parse(text: &str, passwd: &str, group: &str) -> Result<Account, String> {
    let (user, given_group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let (uid, fields) =
        by_name_or_number(passwd, user).ok_or_else(|| format!("there is no user `{user}` in /etc/passwd"))?;
    let field = |at: usize| fields.as_ref().and_then(|fields| fields.get(at).copied());
    let gid = match given_group {
        Some(name) => {
            by_name_or_number(group, name)
                .ok_or_else(|| format!("there is no group `{name}` in /etc/group"))?
                .0
        }
        None => field(3).and_then(|gid| gid.parse().ok()).ok_or_else(|| {
            format!("user `{user}` is not in /etc/passwd, so its group has to be named: {user}:GROUP")
        })?,
    };
    let entry = field(0).map(|name| Entry {
        name: name.to_owned(),
        home: field(5).unwrap_or("/").to_owned(),
        shell: field(6).unwrap_or("/bin/sh").to_owned(),
    });
    let mut groups = vec![gid];
    groups.extend(entry.iter().flat_map(|entry| groups_of(group, &entry.name)).filter(|other| *other != gid));
    Ok(Account { uid, gid, groups, entry })
}

/// The users in `/etc/passwd`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    passwd: String,
}

impl Accounts {
    /// The name of a user, or else its number.
    pub(crate) fn name(&self, uid: u32) -> String {
        self.known_name(uid).map_or_else(|| uid.to_string(), str::to_owned)
    }

    pub(crate) fn known_name(&self, uid: u32) -> Option<&str> {
        Some(find(&self.passwd, 2, &uid.to_string())?[0]).filter(|name| !name.is_empty())
    }

    /// The id of the user that `text` names, by name or number.
    pub(crate) fn uid(&self, text: &str) -> Option<u32> {
        by_name_or_number(&self.passwd, text).map(|(uid, _)| uid)
    }
}

impl Host {
    /// Empty if they cannot be read: then users are known by number.
    pub(crate) fn accounts(&self) -> Accounts {
        let passwd = file::read(self.path("etc/passwd")).unwrap_or_default();
        Accounts { passwd: String::from_utf8_lossy(&passwd).into_owned() }
    }

    /// `text`: `NAME[:GROUP]`, as `--user` takes it.
    pub(crate) fn account(&self, text: &str) -> Result<Account, Error> {
        let read = |name: &str| -> Result<String, Error> {
            let path = self.path(PathBuf::from("etc").join(name));
            let bytes = file::read(&path).map_err(Error::io("read", path))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        parse(text, &read("passwd")?, &read("group")?)
            .map_err(|problem| Error::Usage(format!("--user cannot be `{text}`: {problem}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nflink:x:998:997::/opt/flink:/usr/sbin/nologin\n";
    const GROUP: &str =
        "root:x:0:\nflink:x:997:\nvideo:x:44:nobody,flink\nrender:x:105:flink\nother:x:5:flinker\n";

    #[test]
    #[rustfmt::skip] // a table
    fn a_user_has_its_groups() {
        for (text, ids, is_known) in [
            ("flink",       Ok((998, 997, vec![997, 44, 105])), true),
            ("998",         Ok((998, 997, vec![997, 44, 105])), true),
            ("flink:video", Ok((998, 44, vec![44, 105])),       true),
            ("flink:5",     Ok((998, 5, vec![5, 44, 105])),     true),
            ("1234:77",     Ok((1234, 77, vec![77])),           false),
            ("1234",        Err("user `1234` is not in /etc/passwd, so its group has to be named: 1234:GROUP"), false),
            ("nobody",      Err("there is no user `nobody` in /etc/passwd"),   false),
            ("4294967295:0", Err("there is no user `4294967295` in /etc/passwd"), false),
            ("998:4294967295", Err("there is no group `4294967295` in /etc/group"), false),
            ("flink:gpu",   Err("there is no group `gpu` in /etc/group"),     false),
            ("",            Err("there is no user `` in /etc/passwd"),         false),
            ("-1:0",        Err("there is no user `-1` in /etc/passwd"),       false),
        ] {
            let account = parse(text, PASSWD, GROUP);
            let known = account.as_ref().is_ok_and(|account| account.entry.is_some());
            let found = account.map(|account| (account.uid, account.gid, account.groups));
            assert_eq!((found, known), (ids.map_err(str::to_owned), is_known), "{text}");
        }
    }

    #[test]
    fn a_home_and_a_shell_come_with_a_name() {
        let entry = parse("flink", PASSWD, GROUP).unwrap().entry.unwrap();
        assert_eq!((entry.home.as_str(), entry.shell.as_str()), ("/opt/flink", "/usr/sbin/nologin"));
    }
}
