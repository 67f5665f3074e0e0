// Entry point of the single-file executable with static alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { staticIpam } from './plugin.ts';

await runPlugin(staticIpam);
