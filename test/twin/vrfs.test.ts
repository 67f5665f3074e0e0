// Do VRFs end up like the reference's, except for intentional differences?

import { describeTwins } from './describe.ts';

describeTwins('vrfs');
