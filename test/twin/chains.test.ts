// Do meta links come out as the reference's do behind a bridge, but for what differs on purpose?

import { describeTwins } from './describe.ts';

describeTwins('chains');
