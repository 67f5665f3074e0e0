// Entry point of the single-file executable with the delegate runner alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { runnerIn } from './plugin.ts';

await runPlugin(runnerIn());
