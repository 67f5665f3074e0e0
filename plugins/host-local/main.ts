// Entry point of the single-file executable with host-local alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { hostLocal } from './plugin.ts';

await runPlugin(hostLocal);
