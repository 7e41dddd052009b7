//! Many producers hand work to one serial executor, one submission a batch; and a keyed pool of serial workers.
