// Run bandwidth on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { bandwidth } from './plugin.ts';

await runPlugin(bandwidth);
