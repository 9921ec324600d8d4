"""What does the owner see in a browser? Pages of one party's own daemon, below ``/console``.

The console does what the owner's commands do, through the same functions: what it can do, the
command line can. Needs the extra ``fedmq[console]``.

================  ====================================================================
``console``       how the parts of the console are put together
``navigation``    which pages there are, in which order
``pages``         what each page shows, and what can be done there: one file a page
``sign_in``       who is at the browser, and what may this person do?
``visit``         a request of somebody who is signed in; how a page asks the daemon
``routes``        which address is answered by what, and how a route is declared
``gate``          whom a request comes from, and whether a change was meant
``actions``       an owner's command, by somebody who may give it, on the audit log
``rendering``     templates, and the words and numbers in them
``live``          parts of a page that follow what happens
``curves``        curves as the browser draws them
``tree_outline``  a tree as lines below one another
``static_files``  style sheets and scripts
================  ====================================================================
"""
