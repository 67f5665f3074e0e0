// Run loopback on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { loopback } from './plugin.ts';

await runPlugin(loopback);
