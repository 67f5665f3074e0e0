// Run sbr on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { sbr } from './plugin.ts';

await runPlugin(sbr);
