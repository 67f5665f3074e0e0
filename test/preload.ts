// Do programs under test run as they do on a node?
//
// `bun test --no-orphans` ends what a test leaves behind. Bun hands the option down by its environment, and each of our
// executables would then end its plugins when it dies, which on a node it does not. (`Bun.spawn` without `env` still passes on the original environment.)
delete process.env.BUN_FEATURE_FLAG_NO_ORPHANS;
