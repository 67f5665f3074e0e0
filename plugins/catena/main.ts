// Run catena as a plugin on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { runnerIn } from './plugin.ts';

await runPlugin(runnerIn());
