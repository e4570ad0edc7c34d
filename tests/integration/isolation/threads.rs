//! A process with more than one thread is moved with all of them.

use std::fs;

use super::cell::versions;
use super::descendants::tree_of;
use super::owner::signs;
use super::stage::Stage;
use crate::running::wait_until;

#[test]
fn all_threads_are_confined() {
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>
        static pthread_barrier_t all, told;
        static const char *node;
        static void *look(void *place)
        {
            pthread_barrier_wait(&all);
            pthread_barrier_wait(&told);
            int fd = open(node, O_RDWR);
            (*(int *)place) = fd < 0 ? errno : 0;
            return NULL;
        }
        int main(int count, char **words)
        {
            pthread_t threads[4];
            int found[4];
            (void)count;
            node = words[1];
            pthread_barrier_init(&all, NULL, 5);
            pthread_barrier_init(&told, NULL, 5);
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, look, &found[i]);
            pthread_barrier_wait(&all);
            puts("ready");
            fflush(stdout);
            getchar();
            pthread_barrier_wait(&told);
            for (int i = 0; i < 4; i++) {
                pthread_join(threads[i], NULL);
                printf("node: %s\n", strerror(found[i]));
            }
        }"#;
    for version in versions("all_threads_are_confined") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        fs::write(stage.sandbox.path().join("threads.c"), SOURCE).unwrap();
        assert_eq!(owner.tell("cc -pthread -o threads threads.c 2>&1"), "");
        for (node, expected) in [(0, "++++"), (1, "----")] {
            owner.order(&format!("exec 7<&0; ./threads {} <&7", stage.node(node).display()));
            assert_eq!(owner.line(), "ready");
            stage.confine(1, &owner, "0\n");
            owner.order("");
            let answers: Vec<String> = (0..4).map(|_| owner.line()).collect();
            assert_eq!(signs(&answers.join("\n")), expected);
            stage.release(&owner);
        }
    }
}

/// The first thread is what `/proc` shows of a process, and it can end before the others.
#[test]
fn a_process_whose_first_thread_has_ended_is_confined() {
    const SOURCE: &str = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        static void *look(void *node)
        {
            while (getchar() != EOF) {
                int fd = open(node, O_RDWR);
                printf("node: %s\n", strerror(fd < 0 ? errno : 0));
                fflush(stdout);
            }
            exit(0);
        }
        int main(int count, char **words)
        {
            pthread_t thread;
            (void)count;
            pthread_create(&thread, NULL, look, words[1]);
            pthread_exit(NULL);
        }"#;
    for version in versions("a_process_whose_first_thread_has_ended_is_confined") {
        let stage = Stage::with_gpus(version, 2);
        let mut owner = stage.owner();
        fs::write(stage.sandbox.path().join("threads.c"), SOURCE).unwrap();
        assert_eq!(owner.tell("cc -pthread -o threads threads.c 2>&1"), "");
        owner.tell(&format!("mkfifo orders; ./threads {} <orders & exec 6>orders", stage.node(1).display()));
        let is_led_by_a_zombie = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains("(threads) Z")
        };
        wait_until("its first thread has ended", || tree_of(owner.pid()).iter().any(is_led_by_a_zombie));
        stage.confine(1, &owner, "0\n");
        owner.order("echo >&6");
        assert_eq!(signs(&owner.line()), "-");
        stage.release(&owner);
        owner.order("echo >&6");
        assert_eq!(signs(&owner.line()), "+");
    }
}
