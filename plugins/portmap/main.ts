// Run portmap on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { portmap } from './plugin.ts';

await runPlugin(portmap);
