// Do bridges with VLANs come out as the reference's do, but for what differs on purpose?

import { describeTwins } from './describe.ts';

describeTwins('vlans');
