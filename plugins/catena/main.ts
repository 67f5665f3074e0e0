// Entry point of the single-file executable with the delegate runner alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { RUNNER } from '../registry.ts';

await runPlugin(await RUNNER.load());
