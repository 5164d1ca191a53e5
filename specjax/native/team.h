// Threads that share the parts of a job. They wait busily for nine tenths of a millisecond
// after one, since the next call of a step follows within that time and a sleeping thread
// is late for it; then they sleep.
//
// Which thread takes a part is chance; what a part computes must not depend on it.

#ifndef SPECJAX_TEAM_H_
#define SPECJAX_TEAM_H_

#include "calls.h"

// f(0) .. f(parts - 1), by this thread and up to `threads` - 1 others of the team that
// this process has.
void RunTeam(int threads, int parts, Call<int> f);

#endif
