// Entry point of the single-file executable with host-device alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { hostDevice } from './plugin.ts';

await runPlugin(hostDevice);
