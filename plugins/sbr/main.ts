// Entry point of the single-file executable with sbr alone.
import { runPlugin } from '../../src/plugin/run.ts';
import { sbr } from './plugin.ts';

await runPlugin(sbr);
