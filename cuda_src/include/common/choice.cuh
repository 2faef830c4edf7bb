// A choice between two types at compile time.
#pragma once

template <bool CONDITION, class Then, class Else>
struct If {
    using Type = Then;
};
template <class Then, class Else>
struct If<false, Then, Else> {
    using Type = Else;
};
