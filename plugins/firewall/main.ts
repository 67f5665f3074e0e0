// Entry point of the single-file executable with firewall alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { firewall } from './plugin.ts';

await runPlugin(firewall);
