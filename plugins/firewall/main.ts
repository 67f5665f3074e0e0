// Run firewall on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { firewall } from './plugin.ts';

await runPlugin(firewall);
