// Run flannel on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { flannel } from './plugin.ts';

await runPlugin(flannel);
