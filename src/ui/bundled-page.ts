// What is the page, as a value? The executable contains no sources, so the build inserts the finished value here.
import { bundlePage } from './bundle.ts';
import type { Page } from './server.ts';

export const PAGE: Page = await bundlePage();
