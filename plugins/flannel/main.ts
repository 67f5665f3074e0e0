// Entry point of the single-file executable with flannel alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { flannel } from './plugin.ts';

await runPlugin(flannel);
