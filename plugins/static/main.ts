// Run static on its own, for anyone who wants a single-purpose executable.
import { runPlugin } from '../../src/plugin/run.ts';
import { staticIpam } from './plugin.ts';

await runPlugin(staticIpam);
